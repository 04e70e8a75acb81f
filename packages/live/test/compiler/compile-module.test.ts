import { expect, test } from "vitest";
import { compileModule } from "../../src/compiler/compile-module.ts";
import { ModuleRegistry, type Namespace } from "../../src/runtime/registry.ts";

/**
 * Compiles modules, given dependencies first, evaluates them as the runtime does, and returns the exports of the last.
 */
async function evaluate(sources: Readonly<Record<string, string>>): Promise<Namespace> {
  const registry = new ModuleRegistry(new URL("./", import.meta.url).href, {});
  const artifacts = Object.entries(sources).map(([module, source]) => {
    const { artifact, diagnostics } = compileModule(module, source);
    if (artifact === undefined) throw new Error(diagnostics[0]?.message);
    return artifact;
  });
  registry.commit(await registry.stage(1, artifacts, Object.keys(sources), []));
  return registry.exports(Object.keys(sources).at(-1) ?? "") ?? {};
}

const dependenciesOf = (source: string) => compileModule("src/a.ts", source).artifact?.dependencies ?? [];

test("every form of import and export arrives", async () => {
  const exports = await evaluate({
    "b.ts": `export let count: number = 1; export function add(this: unknown, by: number) { count += by; return this; }
      export default class B { static answer = 42 } export const { x, ...rest } = { x: 1, y: 2 };
      export enum Colour { Red, Green }`,
    "data.json": `{ "name": "data" }`,
    "star.ts": `export * from "./b.ts"; export const own = "own"; export * as whole from "./b.ts";`,
    "a.ts": `import B, { add, count as counted, x } from "./b.ts"; import * as star from "./star.ts";
      import data from "./data.json" with { type: "json" };
      import { join } from "node:path"; import type { Never } from "./c.ts";
      export { counted, rest as others } from "./b.ts"; export { counted as again };
      const before = counted; export const noThis = add(1);
      export const seen = { before, counted, B: B.answer, star: star.count, own: star.own, whole: star.whole.x, x };
      export const name = data.name; export const path = join("a", "b");
      function shadow(counted: string) { { const x = counted; return { x } } } export const shadowed = shadow("mine");
      export const later = import("./b.ts"); export default () => counted; export const { url } = import.meta;`.replace(
      "export { counted, rest as others }",
      "export { count as direct, rest as others }",
    ),
  });
  expect({ ...exports }).toMatchObject({
    seen: { before: 1, counted: 2, B: 42, star: 2, own: "own", whole: 1, x: 1 },
    noThis: undefined,
    direct: 2,
    again: 2,
    others: { y: 2 },
    name: "data",
    path: "a/b",
    shadowed: { x: "mine" },
    url: new URL("./a.ts", import.meta.url).href,
  });
  expect(await (exports["later"] as Promise<Namespace>)).toHaveProperty("count", 2);
});

test("modules that import each other find functions of one another", async () => {
  const exports = await evaluate({
    "b.ts": `import { even } from "./a.ts"; export const early = even(2);
      export function odd(n: number): boolean { return n !== 0 && even(n - 1); }`,
    "a.ts": `import { odd, early } from "./b.ts"; export { early };
      export function even(n: number): boolean { return n === 0 || odd(n - 1); }`,
  });
  expect(exports["early"]).toBe(true);
});

test.for([
  ["in a function", `export const f = () => x;`, "static"],
  ["in a method of an object", `register({ m() { return x; } });`, "static"],
  ["in an instance field", `export class A { field = x; }`, "static"],
  ["at the top", `export const k = x + 1;`, "evaluation"],
  ["as a base class", `export class A extends x {}`, "evaluation"],
  ["in a static field", `export class A { static field = x; }`, "evaluation"],
  ["in a function that is called in place", `export const k = (() => x)();`, "evaluation"],
  ["in a function that is passed on", `export const k = [1].map(() => x);`, "evaluation"],
  [
    "in a function that the module calls",
    `function f() { return g(); } const g = () => x; export const k = f();`,
    "evaluation",
  ],
  ["in a timer", `setTimeout(() => x, 1);`, "static"],
] as const)("a use %s has its kind", ([, body, kind]) => {
  expect(dependenciesOf(`import { x } from "./b.ts"; declare const register: any; ${body}`)).toMatchObject([
    { module: "src/b.ts", kind, names: ["x"] },
  ]);
});

test("type imports, dynamic imports and packages have their kinds", () => {
  const source = `import type { T } from "./t.ts"; import ws from "ws";
    export const f = (t: T) => [import("../c.ts"), ws];`;
  expect(dependenciesOf(source)).toEqual([
    { specifier: "ws", module: null, kind: "static", names: ["default"] },
    { specifier: "../c.ts", module: "c.ts", kind: "dynamic", names: ["*"] },
    { specifier: "./t.ts", module: "src/t.ts", kind: "type", names: [] },
  ]);
});

test("a mistake of syntax is reported with its place", () => {
  const { artifact, diagnostics } = compileModule("src/a.ts", "export const a = 1;\n\tconst b = ;\n");
  expect(artifact).toBeUndefined();
  expect(diagnostics).toMatchObject([{ file: "src/a.ts", line: 2, column: 12, severity: "error", kind: "syntax" }]);
  expect(diagnostics[0]?.frame).toContain("> 2 | \tconst b = ;\n    | \t          ^");
});
