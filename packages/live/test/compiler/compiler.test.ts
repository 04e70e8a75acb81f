import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import type { Artifact, Compilation } from "../../src/compiler/artifact.ts";
import {
  cleanupArtifacts,
  compileApp,
  compileFile,
  incrementalCompile,
  validateArtifacts,
} from "../../src/compiler/compile.ts";
import { Compiler, type CompilerOptions } from "../../src/compiler/compiler.ts";

class TestFolder implements Disposable {
  readonly path = mkdtempSync(join(tmpdir(), "atoll-compile-"));
  readonly cacheDir = join(this.path, "cache");
  readonly app = join(this.path, "app");

  write(files: Readonly<Record<string, string>>): void {
    for (const [path, content] of Object.entries(files)) {
      mkdirSync(dirname(join(this.app, path)), { recursive: true });
      writeFileSync(join(this.app, path), content);
    }
  }

  /** A program that takes the place of the compiler. */
  program(text: string): CompilerOptions {
    const program = join(this.path, "program.mjs");
    writeFileSync(program, text);
    return { cacheDir: this.cacheDir, program };
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}

const byModule = ({ artifacts }: Compilation): Map<string, Artifact> =>
  new Map(artifacts.map((artifact) => [artifact.module, artifact]));

test("only what changed is compiled, and nothing that is known on disk", async () => {
  using folder = new TestFolder();
  const { cacheDir } = folder;
  folder.write({ "a.ts": `import { b } from "./b.ts"; export const a = b;`, "b.ts": `export const b: number = 1;` });
  const first = await compileApp(folder.app, { cacheDir });
  expect(first).toMatchObject({ ok: true, compiled: ["a.ts", "b.ts"], cached: [] });
  folder.write({ "b.ts": `export const b: number = 2;` });
  const second = await incrementalCompile(folder.app, first.artifacts, { cacheDir });
  expect(second).toMatchObject({ ok: true, compiled: ["b.ts"], cached: ["a.ts"] });
  expect(await compileApp(folder.app, { cacheDir })).toMatchObject({ compiled: [], cached: ["a.ts", "b.ts"] });
  expect(await compileApp(folder.app, { cacheDir, cache: false })).toMatchObject({ compiled: ["a.ts", "b.ts"] });
});

test("what is damaged on disk is compiled again", async () => {
  using folder = new TestFolder();
  const { cacheDir } = folder;
  folder.write({ "a.ts": `export const a = 1;` });
  await compileApp(folder.app, { cacheDir });
  const [name = ""] = readdirSync(join(cacheDir, "compiled"));
  const path = join(cacheDir, "compiled", name);
  const stored = readFileSync(path, "utf8");
  for (const damaged of [stored.slice(0, 50), stored.replace("a = 1", "a = 2")]) {
    writeFileSync(path, damaged);
    expect(await compileApp(folder.app, { cacheDir })).toMatchObject({ ok: true, compiled: ["a.ts"] });
    expect(readFileSync(path, "utf8")).toBe(stored);
  }
  expect(await cleanupArtifacts({ cacheDir, maxBytes: 1e6 })).toMatchObject({ files: 1 });
  expect(await cleanupArtifacts({ cacheDir, maxBytes: 1 })).toEqual({ files: 0, bytes: 0 });
});

test("many modules are compiled by several processes, in the given order", async () => {
  using folder = new TestFolder();
  await using compiler = new Compiler({ cacheDir: folder.cacheDir });
  const names = Array.from({ length: 400 }, (_, at) => `m${at}.ts`);
  const sources = new Map(names.map((name, at) => [name, `export const value: number = ${at};`]));
  const first = await compiler.compile(sources);
  expect(first).toMatchObject({ ok: true, compiled: names });
  expect(first.artifacts.every(({ code }, at) => code.includes(`value = ${at};`))).toBe(true);
  sources.set("m7.ts", `export const value = "new";`);
  expect(await compiler.compile(sources, byModule(first))).toMatchObject({ ok: true, compiled: ["m7.ts"] });
});

test("imports of what is not there are errors with their place", async () => {
  using folder = new TestFolder();
  folder.write({
    "a.ts": `import { b } from "./b.ts";\nimport { gone } from "./b.ts";\nimport "./b.js";\nexport default [b, gone];`,
    "b.ts": `export const b = 1;`,
  });
  const { ok, diagnostics } = await compileApp(folder.app, { cacheDir: folder.cacheDir });
  expect(ok).toBe(false);
  expect(diagnostics).toMatchObject([
    { file: "a.ts", line: 1, kind: "dependency", message: `Cannot import "./b.ts": b.ts does not export "gone"` },
    { file: "a.ts", line: 3, column: 8, message: expect.stringContaining("did you mean b.ts?") },
  ]);
  expect(diagnostics[1]?.frame).toContain(`> 3 | import "./b.js";`);
  expect(await compileFile(join(folder.app, "a.ts"), { cacheDir: folder.cacheDir })).toMatchObject({ ok: true });
});

test("a module that needs more memory than the limit is named, and the others are compiled", async () => {
  using folder = new TestFolder();
  await using compiler = new Compiler({ cacheDir: folder.cacheDir, memoryBytes: 32 * 1024 * 1024 });
  const huge = Array.from({ length: 60_000 }, (_, at) => `export const x${at} = { a: [${at}, "b"] };`).join("\n");
  const sources = new Map([
    ["a.ts", `export const a = 1;`],
    ["huge.ts", huge],
    ["z.ts", `export const z = 1;`],
  ]);
  const result = await compiler.compile(sources);
  expect(result).toMatchObject({ ok: false, compiled: ["a.ts", "z.ts"] });
  expect(result.diagnostics).toMatchObject([
    { file: "huge.ts", kind: "resource", message: "Cannot compile huge.ts: it needs more memory than 32 MiB" },
  ]);
  sources.delete("huge.ts");
  expect(await compiler.compile(sources)).toMatchObject({ ok: true });
});

test("a source that brings the compiler down is named", async () => {
  using folder = new TestFolder();
  await using compiler = new Compiler({ cacheDir: folder.cacheDir });
  const sources = new Map([["deep.ts", `export const x = ${"[".repeat(1_000_000)}`]]);
  const { diagnostics } = await compiler.compile(sources);
  expect(diagnostics).toMatchObject([{ file: "deep.ts", severity: "error" }]);
  sources.set("deep.ts", "export const x = 1;");
  expect(await compiler.compile(sources)).toMatchObject({ ok: true });
});

test("a compiler that does not answer is ended at the deadline", async () => {
  using folder = new TestFolder();
  await using compiler = new Compiler(folder.program(`process.stdin.on("data", () => { for (;;); });`));
  const result = await compiler.compile(new Map([["a.ts", "export {};"]]), undefined, 300);
  expect(result).toMatchObject({ ok: false, artifacts: [] });
  expect(result.diagnostics).toMatchObject([
    { file: "a.ts", kind: "resource", message: expect.stringMatching(/not done within \d+ ms/) },
  ]);
});

test("a compiler that answers what it was not asked is not believed", async () => {
  using folder = new TestFolder();
  const { artifacts } = await compileFile(folder.program("").program ?? "", { cacheDir: folder.cacheDir });
  const body = JSON.stringify({ artifact: artifacts[0], diagnostics: [] });
  const program = `process.stdin.on("data", () => {
    const body = Buffer.from(${JSON.stringify(body)}); const head = Buffer.alloc(4); head.writeUInt32BE(body.length);
    process.stdout.write(Buffer.concat([head, body])); });`;
  await using compiler = new Compiler({ ...folder.program(program), cache: false });
  const { diagnostics } = await compiler.compile(new Map([["a.ts", "export {};"]]));
  expect(diagnostics).toMatchObject([
    { kind: "resource", message: expect.stringMatching(/answered for another module/) },
  ]);
});

test("artifacts are checked before they are loaded", async () => {
  using folder = new TestFolder();
  folder.write({ "a.ts": `import { b } from "./b.ts"; export const a = b;`, "b.ts": `export const b = 1;` });
  const { artifacts } = await compileApp(folder.app, { cacheDir: folder.cacheDir });
  const [a, b] = artifacts;
  expect(validateArtifacts(artifacts)).toEqual([]);
  expect(validateArtifacts([a])).toMatchObject([
    { module: "a.ts", message: expect.stringMatching(/there is no module b\.ts/) },
  ]);
  expect(validateArtifacts([{ ...b, code: "1" }])).toMatchObject([
    { module: "b.ts", message: expect.stringMatching(/checksum/) },
  ]);
  expect(validateArtifacts([{ ...b, module: "../b.ts" }])).toMatchObject([
    { message: expect.stringMatching(/out of the app/) },
  ]);
  expect(validateArtifacts([{ module: "c.ts" }])).toMatchObject([
    { module: "c.ts", message: expect.stringMatching(/no artifact/) },
  ]);
});
