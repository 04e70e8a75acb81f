// @module-tag gvisor
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { startHostProcess } from "@atoll/host";
import { expect, test } from "vitest";
import { guestBinaryPath } from "../../tools/setup/guest.mjs";
import { repositoryRoot } from "../../tools/setup/paths.mjs";
import { copyHostScan } from "../support/host-scan.ts";
import { finish } from "../support/test-engine.ts";
import { makeDataDir } from "../support/test-root.ts";

/** Joins the code blocks of a page into one program: imports come first, the other lines keep their order. */
function programOf(page: string, globals: Record<string, string>): string {
  const blocks = [...page.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, code = ""]) => code);
  const lines = blocks.join("\n").split("\n");
  const imports = lines.filter((text) => text.startsWith("import "));
  const body = lines.filter((text) => !text.startsWith("import "));
  const constants = Object.entries(globals).map(([name, value]) => `const ${name} = ${JSON.stringify(value)};`);
  return [...imports, ...constants, ...body].join("\n");
}

/** Returns the output that the comments after `console.log` state. */
function statedOutput(page: string): string[] {
  return [...page.matchAll(/console\.log\(.*\);? \/\/ (.*)$/gm)].map(([, text = ""]) => text);
}

test.for(["engine", "persistence", "transfer"])(
  "the blocks of docs/%s.md run, and print what their comments state",
  async (name) => {
    const dataDir = await makeDataDir();
    copyHostScan(dataDir);
    const page = await readFile(join(repositoryRoot, "docs", `${name}.md`), "utf8");
    // The script is beside the sources, so that Node finds the packages.
    const script = join(repositoryRoot, "tests", "e2e", `.${name}-page-${process.pid}.ts`);
    await writeFile(script, programOf(page, { dataDir, guestPath: guestBinaryPath() }));
    try {
      const program = await startHostProcess(process.execPath, ["--conditions=source", "--import", "tsx", script], {
        signal: AbortSignal.timeout(120_000),
        cwd: repositoryRoot,
      });
      const { exitCode, stdout, stderr } = await finish(program);
      expect(stderr.toString()).toBe("");
      expect(exitCode).toBe(0);
      const printed = stdout
        .toString()
        .split("\n")
        .map((text) => text.trim());
      expect(printed.filter((text) => text !== "")).toEqual(statedOutput(page));
    } finally {
      await rm(script, { force: true });
      await rm(dataDir, { recursive: true, force: true });
    }
  },
);
