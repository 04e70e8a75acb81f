import type { CommandResult, DriverName } from "@atoll/protocol";
import { Atoll } from "@atoll/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ApiClient, type ApiAnswer } from "../support/api-client.ts";
import { needsDriver } from "../support/drivers.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

let server: TestServer;
let api: ApiClient;

beforeAll(async () => {
  server = await startTestServer();
  api = new ApiClient(server.url, server.key);
});
afterAll(() => server.dispose());

const run = (code: string, more: object = {}): Promise<ApiAnswer<CommandResult>> =>
  api.ask<CommandResult>("POST", "/run", { driver: "local", language: "typescript", code, ...more });

test.for<DriverName>(["local", "gvisor"])(
  "TypeScript runs on the machine's own Node, with and without type stripping: %s",
  async (driver, context) => {
    needsDriver(driver, context);
    const code = `import { EOL } from "node:os";
    interface Point { x: number }
    const at = <T extends Point>(point: T): number => point.x;
    process.stdout.write(String(await Promise.resolve(at({ x: 42 }))) + EOL);`;
    const { status, body } = await run(code, { driver });
    expect({ status, stdout: body.stdout, stderr: body.stderr }).toEqual({ status: 200, stdout: "42\n", stderr: "" });
  },
);

test("an error names the line and column of the TypeScript", async () => {
  const typed = await run('type A = {\n  a: number;\n};\nconst a: A = { a: 1 }; throw new Error("boom");\n');
  expect(typed.body.command.exitCode).toBe(1);
  expect(typed.body.stderr).toContain("/home/user/main.ts:4:30");
  const withEnum = await run('enum Colour {\n  Red,\n}\n\nif (Colour.Red === 0) throw new Error("boom");\n');
  expect(withEnum.body.stderr).toContain("main.ts:5:");
});

test("invalid TypeScript fails like a program with an error", async () => {
  const { status, body } = await run("const fine = 1;\nconst x: = 3;\n");
  expect(status).toBe(200);
  expect(body.command).toMatchObject({ state: "exited", exitCode: 1 });
  expect(body.stderr).toMatch(/main\.ts:2\n[^]*const x: = 3;[^]*SyntaxError: /);
  const long = await run(`const fine = "${"x".repeat(500_000)}", x: = 3;`);
  expect(long.body.command).toMatchObject({ exitCode: 1 });
});

test("the SDK runs TypeScript with input", async () => {
  const client = new Atoll({ baseUrl: server.url, apiKey: server.key });
  const code =
    "let all: string = ''; for await (const piece of process.stdin) all += piece; console.log(all.length as number)";
  const result = await client.run({ driver: "local", language: "typescript", code, stdin: "12345" });
  expect(result).toMatchObject({ exitCode: 0, stdout: "5\n" });
  client.close();
});
