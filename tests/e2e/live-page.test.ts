import { execFile } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { repositoryRoot } from "../../tools/setup/paths.mjs";
import { atollArgv, atollEnvironment } from "../support/atoll-command.ts";

const page = readFileSync(join(repositoryRoot, "docs/live.md"), "utf8");
const blocks = [...page.matchAll(/```(ts|console)\n([\s\S]*?)```/g)].map(([, language = "", text = ""]) => ({
  language,
  text,
}));

let top: string;
let env: NodeJS.ProcessEnv;

/** A folder as the reader of the page has it: `atoll` is a program, and packages of ours are installed. */
beforeAll(() => {
  top = mkdtempSync(join(tmpdir(), "atoll-page-"));
  mkdirSync(join(top, "bin"));
  writeFileSync(join(top, "bin/atoll"), `#!/bin/sh\nexec ${atollArgv([]).join(" ")} "$@"\n`);
  chmodSync(join(top, "bin/atoll"), 0o755);
  symlinkSync(join(repositoryRoot, "node_modules"), join(top, "node_modules"));
  const { PATH = "" } = process.env;
  const own = { XDG_STATE_HOME: join(top, "state"), XDG_CACHE_HOME: join(top, "cache"), HOME: top };
  env = atollEnvironment(undefined, { ...own, PATH: `${join(top, "bin")}:${PATH}` });
  // The reader of the tutorial has not seen the modules yet that come after it.
  writeModules(
    blocks.slice(
      0,
      blocks.findIndex(({ language }) => language === "console"),
    ),
  );
});
afterAll(async () => {
  // After a test that failed, the app is still there.
  await execute("bash", ["-c", "atoll app ls -q | xargs -r atoll app rm"], { cwd: top, env });
  rmSync(top, { recursive: true, force: true });
});

const execute = promisify(execFile);

function writeModules(from: typeof blocks): void {
  for (const { language, text } of from) {
    const path = /^\/\/ (\S+\.ts)\n/.exec(text)?.[1];
    if (language !== "ts" || path === undefined) continue;
    mkdirSync(dirname(join(top, path)), { recursive: true });
    writeFileSync(join(top, path), text);
  }
}

/** Whether the output is what the page shows; `…` stands for anything on a line. */
function matches(output: string, shown: string): boolean {
  const pattern = shown
    .split("…")
    .map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`))
    .join(".*");
  return new RegExp(`^${pattern}$`).test(output);
}

test("the commands of the tutorial of docs/live.md print what the page shows", async () => {
  const console = blocks.filter(({ language }) => language === "console").map(({ text }) => text);
  const commands = console.join("").split(/^\$ /m).slice(1);
  expect(commands.length).toBeGreaterThan(10);
  for (const [command = "", ...lines] of commands.map((text) => text.trimEnd().split("\n"))) {
    const { stdout } = await execute("bash", ["-c", command], { cwd: top, env });
    const shown = lines.join("\n");
    if (!matches(stdout.trimEnd(), shown)) expect(`$ ${command}\n${stdout.trimEnd()}`).toBe(`$ ${command}\n${shown}`);
  }
});

test("the programs of docs/live.md print what their comments state", async () => {
  writeModules(blocks);
  // The mistake of the tutorial is repaired, and its last version is the one that the programs use.
  writeFileSync(join(top, "hello/src/words.ts"), `export const praise = (): string => "very good";\n`);
  const programs = blocks.filter(({ language, text }) => language === "ts" && text.startsWith("import "));
  expect(programs).toHaveLength(2);
  for (const [at, { text }] of programs.entries()) {
    const path = join(top, `program-${at}.mts`);
    writeFileSync(path, text);
    const { stdout, stderr } = await execute(process.execPath, ["--conditions=source", "--import", "tsx", path], {
      cwd: top,
      env,
    });
    const stated = [...text.matchAll(/console\.log\(.*\); \/\/ (.*)$/gm)].map(([, line = ""]) => line);
    expect({ stderr, lines: stdout.trim().split("\n") }).toEqual({ stderr: "", lines: stated });
  }
});
