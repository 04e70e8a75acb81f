import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandboxError } from "@atoll/protocol";
import { afterEach, beforeEach, expect, test } from "vitest";
import { doctor, type Finding, formatDoctor } from "../../src/doctor/doctor.ts";
import { checkStart } from "../../src/doctor/machine-facts.ts";

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "atoll-doctor-"));
});
afterEach(() => rm(directory, { recursive: true }));

async function guest(script: string): Promise<string> {
  const path = join(directory, "guest");
  await writeFile(path, `#!/bin/sh\n${script}\n`);
  await chmod(path, 0o755);
  return path;
}

async function find(
  name: string,
  options: { guestPath: string; runscPath?: string; probeStart?: () => Promise<void> },
): Promise<Finding | undefined> {
  const { findings } = await doctor({ dataDir: join(directory, "not/yet/there"), ...options });
  return findings.find((finding) => finding.name === name);
}

test("a guest of our version is ok", async () => {
  expect(await find("guest program", { guestPath: await guest("echo 1") })).toMatchObject({
    status: "ok",
    found: "version 1",
  });
});

test.for([
  { what: "of another version", script: "echo 99" },
  { what: "that does not run", script: "exit 3" },
])("a guest $what is reported as missing, with set-up as the fix", async ({ script }) => {
  expect(await find("guest program", { guestPath: await guest(script) })).toMatchObject({
    status: "missing",
    fix: "npm run setup",
  });
});

test("a missing guest and a missing runsc are reported with a fix", async () => {
  const options = { guestPath: join(directory, "none"), runscPath: join(directory, "none") };
  expect(await find("guest program", options)).toMatchObject({ status: "missing", fix: "npm run setup" });
  expect(await find("runsc", options)).toMatchObject({ status: "missing", affects: "gVisor sandboxes" });
});

test("a sandbox is not tried when something is missing", async () => {
  const probeStart = (): Promise<void> => Promise.reject(new Error("was tried"));
  expect(await find("a first sandbox", { guestPath: join(directory, "none"), probeStart })).toBeUndefined();
});

test("the data directory need not exist yet", async () => {
  expect((await find("data directory", { guestPath: "none" }))?.found).toContain(directory);
});

test("a report reads as a table with advice below", () => {
  const findings = [
    { name: "Linux kernel", status: "ok", found: "linux 6.1", affects: "all sandboxes" },
    {
      name: "runsc",
      status: "missing",
      found: "not installed",
      needs: "runsc",
      fix: "npm run setup",
      affects: "gVisor sandboxes",
    },
  ] as const;
  expect(formatDoctor({ findings: [...findings] })).toBe(
    [
      "ok       Linux kernel  linux 6.1",
      "missing  runsc         not installed",
      "         needs:   runsc",
      "         fix:     npm run setup",
      "         affects: gVisor sandboxes",
    ].join("\n"),
  );
});

test("an error of the first sandbox is reported with its suggestion", async () => {
  const error = new SandboxError("start_failed", "Cannot start the container: exit code 1", {
    suggestion: "Look at the kernel's log.",
  });
  expect(await checkStart(() => Promise.reject(error))).toMatchObject({
    status: "missing",
    found: error.message,
    fix: "Look at the kernel's log.",
  });
  expect(await checkStart(() => Promise.resolve())).toMatchObject({ status: "ok" });
});
