import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { repositoryRoot } from "../../tools/setup/paths.mjs";
import { createReport } from "../../tools/setup/report.mjs";
import { fetchKernel } from "../../tools/vm/kernel.mjs";
import { dataDir as machineDataDir, exchangeDir, runInMachine } from "../../tools/vm/machine.mjs";
import { installPrograms } from "../../tools/vm/packages.mjs";
import { quoted } from "../../tools/vm/test-session.mjs";
import { readPackage } from "../support/sandbox-package.ts";
import { openTestEngine, type TestEngine } from "../support/test-engine.ts";
import { makeDataDir } from "../support/test-root.ts";
import {
  importTemplate,
  type Findings,
  resumeCounting,
  makeRootfs,
  packCountingSandbox,
  importCopy,
} from "./counting-sandbox.ts";

const deadlineMs = 15 * 60_000;

let host: TestEngine;
let work: string;
let cpuFlags: string[];
let findings: Findings;

beforeAll(async () => {
  const report = createReport({ isQuiet: false });
  await installPrograms(report);
  const kernel = await fetchKernel(report);
  work = await makeDataDir();
  host = await openTestEngine();
  const cpuinfo = await readFile("/proc/cpuinfo", "utf8");
  const field = (name: string): string => new RegExp(`^${name}\\s*:(.*)$`, "m").exec(cpuinfo)?.[1]?.trim() ?? "";
  cpuFlags = field("flags").split(/\s+/);

  const outgoing = join(work, "from-host");
  await mkdir(outgoing);
  await makeRootfs(join(outgoing, "rootfs"), kernel.busybox);
  await writeFile(join(outgoing, "features.json"), JSON.stringify(cpuFlags));
  await importTemplate(host.engine, join(outgoing, "rootfs"));
  await packCountingSandbox(host.engine, join(outgoing, "package"));

  const program = [process.execPath, "--conditions=source", "--import", "tsx", "tests/processors/lesser-machine.ts"];
  const environment = [
    "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
    `TMPDIR=${machineDataDir}`,
    `ATOLL_TEST_ROOT=${machineDataDir}/test`,
  ];
  const command = ["env", "-i", ...environment, ...program, exchangeDir, machineDataDir].map(quoted).join(" ");
  const session = {
    script: `cp -r ${quoted(outgoing)} ${exchangeDir}\ncd ${quoted(repositoryRoot)}\n${command}`,
    kernelArguments: "cgroup_no_v1=all",
    // These features are in nearly every processor of the last fifteen years. The vendor is that of the host's
    // processor.
    processor: `qemu64,vendor=${field("vendor_id")},-svm,-cmp-legacy,-hypervisor,+ssse3,+sse4.1,+sse4.2,+popcnt`,
    deadlineMs,
    signal: new AbortController().signal,
  };
  findings = await runInMachine(kernel, session, async (exchange) => {
    await cp(join(exchange, "from-machine"), join(work, "from-machine"), { recursive: true });
    return JSON.parse(await readFile(join(exchange, "findings.json"), "utf8")) as Findings;
  });
});

afterAll(async () => {
  await host.dispose();
  await rm(work, { recursive: true, force: true });
});

test("the two processors differ", () => {
  expect(cpuFlags).toEqual(expect.arrayContaining(["sse4_2", "avx2"]));
  expect(findings.cpuFlags).toContain("sse4_2");
  expect(findings.cpuFlags).not.toContain("avx2");
});

test("a sandbox paused on the lesser processor resumes on the better one and carries on with its work", async () => {
  const from = join(work, "from-machine");
  const packed = await readPackage(from);
  expect(packed.manifest.cpuFeatures).toContain("sse4_2");
  expect(packed.manifest.cpuFeatures).not.toContain("avx2");
  const sandbox = await importCopy(host.engine, from);
  expect(await resumeCounting(host.engine, sandbox, from)).toBe("3\n");
  // After the resume it may have used features of the better processor.
  const { checkpoint } = await host.engine.pause(sandbox.id);
  const { manifest } = await host.engine.checkpointFiles(sandbox.id, checkpoint);
  expect(manifest.cpuFeatures).toContain("avx2");
});

test("the lesser processor refuses a sandbox that needs more features, names them, and creates nothing", () => {
  expect(findings.imported).toMatchObject({
    code: "unrestorable",
    details: { lacking: expect.arrayContaining(["avx2"]) },
  });
  expect(findings.left).toEqual([]);
});

test("the lesser processor refuses a configured set of features that it does not have", () => {
  expect(findings.opened).toMatchObject({
    code: "unsupported",
    details: { lacking: expect.arrayContaining(["avx2"]) },
  });
});
