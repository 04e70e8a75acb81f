// @module-tag gvisor
import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { startHostProcess } from "@atoll/host";
import { afterAll, beforeAll, expect, test } from "vitest";
import { repositoryRoot } from "../../tools/setup/paths.mjs";
import { finish } from "../support/test-engine.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

const marker = "=== example";
let server: TestServer;

beforeAll(async () => {
  server = await startTestServer();
});

afterAll(async () => {
  await server?.dispose();
});

/** Returns the code under each `@example` in comments. */
function examplesIn(source: string): string[] {
  const blocks = source.matchAll(/@example\n((?: *\* ?.*\n)*?) *\*\//g);
  return [...blocks].map(([, block = ""]) => block.replaceAll(/^ *\* ?/gm, ""));
}

/** Returns the output that the comments after `console.log` state. */
function statedOutput(code: string): string[] {
  return [...code.matchAll(/console\.log\(.*\);? \/\/ (.*)$/gm)].map(([, text = ""]) => text);
}

async function runProgram(name: string, program: string): Promise<string> {
  // The script is beside the sources, so that Node finds the packages.
  const script = join(repositoryRoot, "tests", "e2e", `.${name}-${process.pid}.ts`);
  await writeFile(script, program);
  try {
    const child = await startHostProcess(process.execPath, ["--conditions=source", "--import", "tsx", script], {
      signal: AbortSignal.timeout(250_000),
      cwd: repositoryRoot,
      env: { ATOLL_API_URL: server.url, ATOLL_API_KEY: server.key, PATH: process.env["PATH"] ?? "" },
    });
    const { exitCode, stdout, stderr } = await finish(child);
    expect(stderr.toString()).toBe("");
    expect(exitCode).toBe(0);
    return stdout.toString();
  } finally {
    await rm(script, { force: true });
  }
}

const linesOf = (text: string): string[] =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");

test("the examples in the SDK's comments run, and print what they state", async () => {
  const sourceRoot = join(repositoryRoot, "packages", "sdk", "src");
  const files = await readdir(sourceRoot, { recursive: true });
  const sources = files.filter((file) => file.endsWith(".ts")).toSorted();
  const texts = await Promise.all(sources.map((file) => readFile(join(sourceRoot, file), "utf8")));
  const examples = texts.flatMap((text) => examplesIn(text));
  expect(examples.length).toBeGreaterThan(40);
  const printed = await runProgram(
    "sdk-comments",
    [
      'import { Atoll, run, Sandbox } from "@atoll/sdk";',
      'import { MockServer } from "@atoll/sdk/mock";',
      "const atoll = new Atoll();",
      "const sandbox = await Sandbox.create();",
      ...examples.map((code) => `console.log(${JSON.stringify(marker)});\nawait (async () => {\n${code}\n})();`),
    ].join("\n"),
  );
  const outputs = printed.split(marker).slice(1).map(linesOf);
  expect(outputs).toEqual(examples.map(statedOutput));
});

test.for(["sdk", "snapshots"])("the blocks of docs/%s.md run, and print what their comments state", async (name) => {
  const page = await readFile(join(repositoryRoot, "docs", `${name}.md`), "utf8");
  const lines = [...page.matchAll(/```ts\n([\s\S]*?)```/g)].flatMap(([, code = ""]) => code.split("\n"));
  const imports = lines.filter((line) => line.startsWith("import "));
  const body = lines.filter((line) => !line.startsWith("import "));
  const printed = await runProgram(`${name}-page`, [...imports, ...body].join("\n"));
  expect(linesOf(printed)).toEqual(statedOutput(page));
});
