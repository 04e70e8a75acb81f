import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { Sandbox } from "@atoll/engine";
import { afterEach, beforeEach, expect, test } from "vitest";
import { recoverRollback } from "../../src/manager/sandbox-rollbacks.ts";

let ownerDir: string;
beforeEach(async () => {
  ownerDir = await mkdtemp(join(tmpdir(), "atoll-rollback-"));
});
afterEach(() => rm(ownerDir, { recursive: true }));

const now = { "commands/log": "now" };
const then = { "rolling-back/3/commands/log": "then" };

/**
 * The files that a crash left, the checkpoint that the sandbox is based on, and the commands that it has afterwards.
 */
const crashes: [what: string, left: Record<string, string>, current: number, log: string][] = [
  ["before anything was unpacked", now, 5, "now"],
  ["while it was being unpacked", { ...now, "rolling-back/all/commands/log": "half" }, 5, "now"],
  ["before the sandbox had switched", { ...now, ...then }, 5, "now"],
  ["after the sandbox had switched", { ...now, ...then }, 3, "then"],
  ["after the current commands were removed", then, 3, "then"],
  [
    "after the commands of the checkpoint were in place",
    { "commands/log": "then", "rolling-back/3/other": "" },
    3,
    "then",
  ],
];

test.for(crashes)("a crash %s leaves the commands of one time", async ([, left, checkpoint, log]) => {
  for (const [name, content] of Object.entries(left)) {
    await mkdir(dirname(join(ownerDir, name)), { recursive: true });
    await writeFile(join(ownerDir, name), content);
  }
  await recoverRollback({ ownerDir, record: { state: "paused", checkpoint } } as unknown as Sandbox);
  expect(await readdir(ownerDir)).toEqual(["commands"]);
  expect(await readFile(join(ownerDir, "commands/log"), "utf8")).toBe(log);
});
