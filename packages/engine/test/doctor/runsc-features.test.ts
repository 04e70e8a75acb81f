import { chmod, mkdtemp, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isSandboxError } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { detectRunsc, idlesForFree, parseRunsc } from "../../src/doctor/runsc-features.ts";

const flags = ["-root string", "-platform string", "-network value", "-overlay2 value", "-ignore-cgroups", "-debug"]
  .map((flag) => `  ${flag}\n    \twhat it does -not-a-flag\n`)
  .join("");
const good = {
  version: "runsc version 0.0~20240729.0\nspec: 1.0.2-dev\n",
  flags,
  platforms: "ptrace\nkvm\nsystrap\n",
  help: "Subcommands:\n\tcheckpoint       saves\n\tcpu-features     lists\n",
};

describe("the output of runsc", () => {
  test("is parsed", () => {
    const runsc = parseRunsc("/usr/bin/runsc", good);
    expect(runsc).toMatchObject({ path: "/usr/bin/runsc", version: "0.0~20240729.0", date: 20_240_729 });
    expect(runsc.platforms).toEqual(["systrap", "ptrace"]);
    expect([...runsc.flags]).toEqual(["root", "platform", "network", "overlay2", "ignore-cgroups", "debug"]);
    expect([...runsc.subcommands]).toEqual(["checkpoint", "cpu-features"]);
  });

  test.for([
    { version: "release-20250101.0", date: 20_250_101, isFree: false },
    { version: "0.0~20240729.0-4~bpo12+2", date: 20_240_729, isFree: false },
    { version: "release-20260622.0", date: 20_260_622, isFree: true },
    { version: "VERSION_MISSING", date: undefined, isFree: false },
  ])("version $version is of $date, and idles for free: $isFree", ({ version, date, isFree }) => {
    const runsc = parseRunsc("/r", { ...good, version: `runsc version ${version}\n` });
    expect([runsc.date, idlesForFree(runsc)]).toEqual([date, isFree]);
  });

  test.for([
    { what: "an old release", said: { version: "runsc version 0.0~20221219.0\n" }, reason: "20221219" },
    { what: "another program", said: { version: "runc version 1.1\n" }, reason: "is not runsc" },
    {
      what: "one without the overlay flag",
      said: { flags: flags.replace("-overlay2", "-overlay") },
      reason: "--overlay2",
    },
    { what: "one with only KVM", said: { platforms: "kvm\n" }, reason: "no platform" },
    {
      what: "an undated one without systrap",
      said: { version: "runsc version dev\n", platforms: "ptrace\n" },
      reason: "no platform",
    },
  ])("$what is refused with the reason and what to do", ({ said, reason }) => {
    expect(() => parseRunsc("/r", { ...good, ...said })).toThrow(
      expect.objectContaining({
        code: "unsupported",
        message: expect.stringContaining(reason),
        suggestion: expect.stringContaining("npm run setup"),
      }),
    );
  });
});

describe("finding runsc", () => {
  let directory: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), "atoll-runsc-"));
  });
  afterEach(() => rm(directory, { recursive: true }));

  /** Makes a program that prints the files beside it. */
  async function fake(version: string): Promise<string> {
    const path = join(directory, "runsc");
    await writeFile(join(directory, "version"), `runsc version ${version}\n`);
    await writeFile(join(directory, "flags"), flags);
    const script = `cd ${directory}
case $1 in --version) cat version;; flags) cat flags >&2;; help) echo systrap;; esac`;
    await writeFile(path, `#!/bin/sh\n${script}\n`);
    await chmod(path, 0o755);
    return path;
  }
  const say = (version: string): Promise<void> => writeFile(join(directory, "version"), `runsc version ${version}\n`);

  test("the answers are cached until the program changes", async () => {
    const path = await fake("release-20250101.0");
    const first = await detectRunsc(path);
    await say("release-20260101.0");
    expect(await detectRunsc(path)).toBe(first);
    await utimes(path, 1, 1);
    expect(await detectRunsc(path)).toMatchObject({ date: 20_260_101, platforms: ["systrap"] });
  });

  test("a refusal is not cached", async () => {
    const path = await fake("release-20200101.0");
    await expect(detectRunsc(path)).rejects.toSatisfy((error) => isSandboxError(error, "unsupported"));
    await say("release-20250101.0");
    expect(await detectRunsc(path)).toMatchObject({ date: 20_250_101 });
  });

  test.for(["none", "not-a-program"])("%s is unsupported", async (name) => {
    await writeFile(join(directory, "not-a-program"), "text");
    await expect(detectRunsc(join(directory, name))).rejects.toSatisfy((error) => isSandboxError(error, "unsupported"));
  });
});
