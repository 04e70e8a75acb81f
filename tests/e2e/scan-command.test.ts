import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { runAtoll } from "../support/atoll-command.ts";

let folder: string;
let app: string;
let script: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "atoll-scan-"));
  app = join(folder, "src/app.ts");
  script = join(folder, "start.py");
  for (const name of ["src", "node_modules", ".hidden"]) mkdirSync(join(folder, name));
  writeFileSync(app, 'export default (text: string): unknown => eval(text);\nimport "node:fs";\n');
  writeFileSync(script, "import subprocess\nsubprocess.run(['ls'])\n");
  for (const path of ["node_modules/left.js", ".hidden/left.js", "left.txt"]) {
    writeFileSync(join(folder, path), "eval('1')");
  }
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("scan names what the profile refuses with its place, and ends with 1", async () => {
  const { exitCode, stdout } = await runAtoll(undefined, ["scan", folder, "--json"]);
  expect(exitCode).toBe(1);
  const { findings, ...counts } = JSON.parse(stdout) as { findings: { file: string }[] };
  expect(counts).toEqual({ ok: false, profile: "high", files: 2 });
  expect(findings).toContainEqual(
    expect.objectContaining({ file: app, line: 1, column: 43, rule: "dynamic_code", isRefused: true }),
  );
  expect(findings).toContainEqual(expect.objectContaining({ file: app, line: 2, isRefused: false }));
  expect(findings).toContainEqual(expect.objectContaining({ file: script, rule: "start_process", isRefused: true }));
  expect(findings.filter(({ file }) => file.includes("left"))).toEqual([]);
});

test("scan prints warnings for people and for GitHub, and ends with 0, if the profile refuses nothing", async () => {
  const people = await runAtoll(undefined, ["scan", app, "--profile", "low"]);
  expect(people).toMatchObject({ exitCode: 0, stdout: expect.stringContaining("0 errors, 2 warnings") });
  expect(people.stdout).toContain("> 1 | export default");
  const github = await runAtoll(undefined, ["scan", app, "--profile", "low", "--format", "github"]);
  expect(github.exitCode).toBe(0);
  expect(github.stdout).toContain(`::warning file=${app},line=1,col=43::`);
});

test("scan refuses what it cannot scan", async () => {
  const { exitCode, stderr } = await runAtoll(undefined, ["scan", join(folder, "left.txt")]);
  expect(exitCode).toBe(2);
  expect(stderr).toContain("Only JavaScript, TypeScript and Python are scanned");
});

test("app check reports findings as warnings, and as errors where the profile of the app refuses them", async () => {
  const check = async (...format: string[]) => runAtoll(undefined, ["app", "check", folder, ...format]);
  expect(await check("--format", "unix")).toMatchObject({
    exitCode: 0,
    stdout: expect.stringContaining(`${app}:1:43: warning: high: `),
  });
  writeFileSync(join(folder, "live.json"), JSON.stringify({ profile: "high" }));
  const { exitCode, stdout } = await check("--json");
  expect(exitCode).toBe(1);
  expect(JSON.parse(stdout)).toMatchObject({
    ok: false,
    diagnostics: expect.arrayContaining([
      expect.objectContaining({ kind: "scan", code: "dynamic_code", severity: "error" }),
    ]),
  });
});
