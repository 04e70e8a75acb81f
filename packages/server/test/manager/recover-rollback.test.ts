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

/** What a crash has left, and the checkpoint that the sandbox stands on; then what its commands are. */
const crashes: [what: string, left: Record<string, string>, current: number, log: string][] = [
  ["before anything was unpacked", now, 5, "now"],
  ["while it was being unpacked", { ...now, "rolling-back/all/commands/log": "half" }, 5, "now"],
  ["before the sandbox was there", { ...now, ...then }, 5, "now"],
  ["when the sandbox was there", { ...now, ...then }, 3, "then"],
  ["when the commands of now were gone", then, 3, "then"],
  ["when those of then had their place", { "commands/log": "then", "rolling-back/3/other": "" }, 3, "then"],
];

test.for(crashes)("a crash %s leaves one or the other", async ([, left, checkpoint, log]) => {
  for (const [name, content] of Object.entries(left)) {
    await mkdir(dirname(join(ownerDir, name)), { recursive: true });
    await writeFile(join(ownerDir, name), content);
  }
  await recoverRollback({ ownerDir, record: { state: "paused", checkpoint } } as unknown as Sandbox);
  expect(await readdir(ownerDir)).toEqual(["commands"]);
  expect(await readFile(join(ownerDir, "commands/log"), "utf8")).toBe(log);
});
