import { afterAll, expect, test } from "vitest";
import { TypeStripper } from "../../src/manager/type-stripper.ts";

const types = new TypeStripper();
afterAll(() => types.close());

async function codeOf(source: string): Promise<string> {
  const stripped = await types.strip(source, "/home/user/main.ts");
  if ("complaint" in stripped) throw new Error(stripped.complaint);
  return stripped.code;
}

test("types are replaced by blanks, and everything else stays in its place", async () => {
  const source =
    "interface A { a: number }\nconst twice = (x: number): number => x * 2;\nconsole.log(twice(1 as 1));\n";
  const lines = (await codeOf(source)).split("\n");
  expect(lines[0]?.trim()).toBe("");
  expect(lines[2]?.indexOf("twice")).toBe(source.split("\n")[2]?.indexOf("twice"));
  expect(lines).toContain("//# sourceURL=/home/user/main.ts");
});

test("syntax that is more than a type becomes code, with a source map", async () => {
  const stripped = await types.strip("enum Colour { Red }\nconsole.log(Colour[0]);", "/home/user/main.ts");
  expect(stripped).toMatchObject({ hasMap: true });
  expect(await codeOf("enum Colour { Red }")).toContain("sourceMappingURL=data:application/json;base64,");
});

test("a syntax error is reported with its line", async () => {
  const stripped = await types.strip("const fine = 1;\nconst x: = 3;\n", "/home/user/main.ts");
  const complaint = "complaint" in stripped ? stripped.complaint : "";
  expect(complaint).toMatch(/^\/home\/user\/main\.ts:2\n/);
  expect(complaint).toMatch(/SyntaxError: /);
});

test.for([
  ["deeply nested", "[".repeat(1_000_000)],
  ["without an end", "a<".repeat(300_000)],
])("a program that is %s is refused, and the next one is compiled", async ([, source = ""]) => {
  expect(await types.strip(source, "/home/user/main.ts")).toHaveProperty("complaint");
  expect(await codeOf("let a: number = 1")).toContain("let a         = 1");
});

test("many programs at once are each compiled correctly", async () => {
  const sources = Array.from({ length: 20 }, (_, index) => `const n: number = ${index};`);
  const codes = await Promise.all(sources.map(codeOf));
  for (const [index, code] of codes.entries()) expect(code).toContain(`= ${index};`);
});
