import { cpSync, existsSync, mkdirSync, renameSync, writeFileSync } from "node:fs";
import { CgroupV2Tree } from "@atoll/host";
import { FakeCgroupKernel } from "@atoll/host/testing";
import { isSandboxError, SandboxLimits, TemplateName } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ContainerRuns, startFailed } from "../../src/drivers/container-runs.ts";
import type { LaunchSpec } from "../../src/drivers/driver.ts";
import { DataLayout, SandboxLayout } from "../../src/store/layout.ts";
import { newContainerId, newSandboxId } from "../../src/support/ids.ts";
import { caught } from "../support/caught.ts";
import { FakeLauncher, livesOn } from "../support/fake-launcher.ts";
import { TemporaryDirectory } from "../support/temporary-directory.ts";

const never = new AbortController().signal;
let directory: TemporaryDirectory;
let kernel: FakeCgroupKernel;
let launcher: FakeLauncher;
let runs: ContainerRuns;
let spec: LaunchSpec;

beforeEach(() => {
  directory = new TemporaryDirectory();
  kernel = new FakeCgroupKernel(2, { "/u": ["cpu", "memory", "pids"] });
  const layout = new DataLayout(directory.path).sandbox(newSandboxId());
  const trees = [
    { at: "/", lower: ["/tpl/root"] },
    { at: "/usr", lower: ["/tpl/usr", "/usr"] },
  ];
  spec = {
    containerId: newContainerId(),
    hostname: "box",
    layout,
    template: { name: TemplateName.parse("host"), trees },
    limits: SandboxLimits.parse({}),
  };
});
afterEach(() => {
  launcher[Symbol.dispose]();
  directory[Symbol.dispose]();
});

function useLauncher(script: string): void {
  launcher = new FakeLauncher(script);
  const cgroups = new CgroupV2Tree(kernel, "/u");
  runs = new ContainerRuns({ guestPath: launcher.path, guestLayer: "/guest-layer", cgroups, namespace: "ns" });
}

const plan = () => ({ program: ["/bin/init"] });

test("what was made for a container is handed to its launcher", async () => {
  useLauncher(livesOn);
  const { containerId, layout } = spec;
  const run = layout.run(containerId);
  const container = await runs.launch(spec, plan, { signal: never, pidsMax: 99 });
  const words = launcher.args?.trimEnd().split("\n") ?? [];
  const overlay = (lower: string, index: number): string => {
    const { upper, work } = layout.layer(index);
    return `lowerdir=${lower},upperdir=${upper},workdir=${work},redirect_dir=off,index=off,metacopy=off`;
  };
  expect(words.join(" ")).toBe(
    [
      `launch --dir ${run.dir} --cgroup /u/atoll/ns/${containerId}/run --freezer /u/atoll/ns/${containerId}/run`,
      `--overlay ${run.rootfs} ${overlay("/guest-layer:/tpl/root", 0)}`,
      `--overlay ${run.rootfs}/usr ${overlay("/tpl/usr:/usr", 1)}`,
      "--wait -- /bin/init",
    ].join(" "),
  );
  expect(words.flatMap((word) => /(?:upper|work)dir=([^,]+)/g.exec(word)?.[1] ?? []).every(existsSync)).toBe(true);
  expect(kernel.file(`/u/atoll/ns/${containerId}/pids.max`)).toBe("99");
  expect(container.fifos).toEqual(run.fifos);
});

test("a start that fails leaves nothing of the container, and all of the sandbox's files", async () => {
  useLauncher('echo "error mounts 1 No" >&3\nexit 125');
  expect(isSandboxError(await caught(runs.launch(spec, plan, { signal: never })), "start_failed")).toBe(true);
  expect(existsSync(spec.layout.run(spec.containerId).dir)).toBe(false);
  expect(existsSync(spec.layout.layer(0).upper)).toBe(true);
  expect(kernel.groups.filter((path) => path.includes(spec.containerId))).toEqual([]);
});

test("an abort before the launcher is started leaves nothing either", async () => {
  useLauncher(livesOn);
  const reason = new Error("changed my mind");
  expect(await caught(runs.launch(spec, plan, { signal: AbortSignal.abort(reason) }))).toBe(reason);
  expect(existsSync(spec.layout.run(spec.containerId).dir)).toBe(false);
  expect(launcher.args).toBeUndefined();
});

test("a plan that fails leaves nothing either", async () => {
  useLauncher(`read word || exit 9\n${livesOn}`);
  const failing = { ...plan(), prepare: () => Promise.reject(new Error("the disk is full")) };
  await expect(runs.launch(spec, () => failing, { signal: never })).rejects.toThrow("the disk is full");
  expect(existsSync(spec.layout.run(spec.containerId).dir)).toBe(false);
  expect(kernel.groups.filter((path) => path.includes(spec.containerId))).toEqual([]);
});

test("nothing runs for a container whose intent could not be stored", async () => {
  useLauncher(`read word || exit 9\n${livesOn}`);
  const mayStart = Promise.reject(new Error("the disk is full"));
  await expect(runs.launch(spec, plan, { signal: never, mayStart })).rejects.toThrow("the disk is full");
  expect(existsSync(spec.layout.run(spec.containerId).dir)).toBe(false);
  expect(launcher.isRunning).toBe(false);
});

test("removing a missing container succeeds", async () => {
  useLauncher(livesOn);
  await runs.remove(spec.containerId, spec.layout);
});

describe("adoption", () => {
  test("a container whose launcher runs is found", async () => {
    useLauncher(livesOn);
    const { ref } = await runs.launch(spec, plan, { signal: never });
    const adopted = await runs.adopt(ref, spec.layout);
    expect(adopted).toMatchObject({ ref, fifos: spec.layout.run(spec.containerId).fifos });
  });

  test("a container whose process id belongs to another process now is not found", async () => {
    useLauncher(livesOn);
    const { ref, launcherGone } = await runs.launch(spec, plan, { signal: never });
    expect(await runs.adopt({ ...ref, startTicks: ref.startTicks + 1 }, spec.layout)).toBeUndefined();
    expect(await runs.adopt({ ...ref, bootId: "another boot" }, spec.layout)).toBeUndefined();
    process.kill(-ref.pid, "SIGKILL");
    await launcherGone;
    expect(await runs.adopt(ref, spec.layout)).toBeUndefined();
  });

  test("a container of the copied original is not found, one of a moved directory is", async () => {
    useLauncher(`exec 9<"$3/deadline"\n${livesOn}`);
    const { ref } = await runs.launch(spec, plan, { signal: never, allowedUntil: () => 1_000_000 });
    using elsewhere = new TemporaryDirectory();
    const copy = new SandboxLayout(elsewhere.join("copy"));
    cpSync(spec.layout.dir, copy.dir, { recursive: true });
    expect(await runs.adopt(ref, copy)).toBeUndefined();
    const moved = new SandboxLayout(elsewhere.join("moved"));
    renameSync(spec.layout.dir, moved.dir);
    expect(await runs.adopt(ref, moved)).toMatchObject({ ref });
  });
});

describe("how a container ended", () => {
  async function exitOf(line: string, stderr: string, oomKills: number): Promise<unknown> {
    useLauncher(livesOn);
    const container = await runs.launch(spec, plan, { signal: never });
    const run = spec.layout.run(spec.containerId);
    mkdirSync(run.dir, { recursive: true });
    writeFileSync(run.exitFile, line);
    writeFileSync(run.stderrFile, stderr);
    kernel.setFile(`/u/atoll/ns/${spec.containerId}/memory.events`, `oom_kill ${oomKills}\n`);
    return container.findExit();
  }

  test("with an exit code", async () => {
    expect(await exitOf("exit 3\n", "last words", 0)).toEqual({
      exitCode: 3,
      signal: null,
      outOfMemory: false,
      stderr: "last words",
    });
  });

  test("by a signal, out of memory, with more output than is kept", async () => {
    expect(await exitOf("signal 9\n", `${"x".repeat(10_000)}end`, 1)).toEqual({
      exitCode: null,
      signal: "signal 9",
      outOfMemory: true,
      stderr: expect.stringMatching(/^x{4093}end$/),
    });
  });

  test.for([
    { exit: { exitCode: 2, signal: null, outOfMemory: false }, how: "exit code 2" },
    { exit: { exitCode: null, signal: "signal 9", outOfMemory: false }, how: "signal 9" },
    { exit: { exitCode: null, signal: null, outOfMemory: false }, how: "it is gone" },
    { exit: { exitCode: null, signal: "signal 9", outOfMemory: true }, how: "it ran out of memory" },
  ])("a start that ended with $how says so", ({ exit, how }) => {
    const error = startFailed({ ...exit, stderr: "words" }, "the guest's hello");
    expect(error.code).toBe("start_failed");
    expect(error.message).toBe(`Cannot start the container: ${how} while waiting for the guest's hello`);
    expect(error.details).toMatchObject({ phase: "the guest's hello", stderr: "words" });
  });
});
