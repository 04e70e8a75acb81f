// @module-tag gvisor
import { execFile } from "node:child_process";
import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { CheckpointManifest } from "@atoll/protocol";
import { expect, onTestFinished, test } from "vitest";
import { openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";
import { makeDataDir } from "../support/test-root.ts";

const run = promisify(execFile);

/** Returns the flags of the first processor; all processors of one machine are alike. */
async function ownFlags(): Promise<string[]> {
  const [, flags = ""] = /^flags\s*:(.*)$/m.exec(await readFile("/proc/cpuinfo", "utf8")) ?? [];
  return flags.trim().split(/\s+/).toSorted();
}

async function open(options: Parameters<typeof openTestEngine>[0]): Promise<TestEngine> {
  const host = await openTestEngine(options);
  onTestFinished(() => host.dispose());
  return host;
}

test("a checkpoint records the common CPU features, and resumes on every machine that has them", async () => {
  const flags = await ownFlags();
  const first = await open({ cpuFeatures: flags });
  const { id } = await first.engine.create({});
  await first.engine.pause(id);
  const manifest = join(first.dataDir, "sandboxes", id, "checkpoints/1/manifest.json");
  const { cpuFeatures: common } = CheckpointManifest.parse(JSON.parse(await readFile(manifest, "utf8")));
  expect(common).toEqual(expect.arrayContaining(["fpu", "sse2"]));
  expect(flags).toEqual(expect.arrayContaining(common));
  await first.engine.resume(id);
  expect((await runIn(first.engine.get(id), "echo on")).output).toBe("on\n");
  await first.engine.pause(id);
  await first.engine.close();

  const { dataDir } = first;
  const [missing = ""] = common;
  const lesser = await open({ dataDir, readCpuFlags: async () => common.slice(1) });
  await expect(lesser.engine.resume(id)).rejects.toMatchObject({
    code: "unrestorable",
    message: expect.stringContaining(missing),
  });
  expect(lesser.engine.get(id).state).toBe("paused");
  await lesser.engine.close();

  const greater = await open({ dataDir, readCpuFlags: async () => [...common, "zz_feature_of_2050"] });
  await greater.engine.resume(id);
  expect((await runIn(greater.engine.get(id), "echo on")).output).toBe("on\n");
});

test("other features are hidden where that is possible, and refused by name where it is not", async () => {
  const hidden = "ssse3";
  const flags = await ownFlags();
  expect(flags).toContain(hidden);
  const rest = flags.filter((flag) => flag !== hidden);
  const canHide = flags.includes("cpuid_fault") && (await run("runsc", ["help"])).stdout.includes("cpu-features");
  const dataDir = await makeDataDir();
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
  const opening = open({ cpuFeatures: rest, dataDir });
  if (!canHide) return expect(opening).rejects.toMatchObject({ code: "unsupported", details: { hidden: [hidden] } });
  const sandbox = await (await opening).engine.create({});
  expect((await runIn(sandbox, "grep -m1 ^flags /proc/cpuinfo")).output.split(/\s+/)).not.toContain(hidden);
});
