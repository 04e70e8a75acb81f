import { isAlive } from "@atoll/host";
import { isSandboxError } from "@atoll/protocol";
import { describe, expect, test } from "vitest";
import { launch, launcherArguments, type LauncherCommand } from "../../src/drivers/launcher.ts";
import { caught } from "../support/caught.ts";
import { FakeLauncher, livesOn } from "../support/fake-launcher.ts";

const never = { signal: new AbortController().signal };
const command: LauncherCommand = {
  guestPath: "/guest",
  runDir: "/data/run",
  cgroups: [],
  overlays: [],
  program: ["/bin/runsc", "--debug", "run"],
};
const through = (launcher: FakeLauncher): LauncherCommand => ({ ...command, guestPath: launcher.path });

describe("its arguments", () => {
  test("the least", () => {
    expect(launcherArguments(command)).toEqual([
      "launch",
      "--dir",
      "/data/run",
      "--wait",
      "--",
      "/bin/runsc",
      "--debug",
      "run",
    ]);
  });

  test("all arguments, in the order of the steps, and those of the program after --", () => {
    const args = launcherArguments({
      ...command,
      cgroups: ["/sys/a", "/sys/b"],
      overlays: [
        { target: "/r", options: "lowerdir=/a" },
        { target: "/r/usr", options: "lowerdir=/b" },
      ],
      enter: { root: "/r", hostname: "box" },
      batch: true,
      noAttributes: true,
    });
    expect(args.join(" ")).toBe(
      "launch --dir /data/run --cgroup /sys/a --cgroup /sys/b --overlay /r lowerdir=/a --overlay /r/usr lowerdir=/b " +
        "--enter /r box --batch --no-attributes --wait -- /bin/runsc --debug run",
    );
  });

  test("they reach the launcher unchanged", async () => {
    using launcher = new FakeLauncher(livesOn);
    const wild = { ...through(launcher), program: ["echo", "a b", "", "$HOME", "'"] };
    await launch(wild, never);
    expect(launcher.args).toBe(`${launcherArguments(wild).join("\n")}\n`);
  });
});

describe("a start", () => {
  test("it resolves with the last step, to a launcher that can be found again", async () => {
    using launcher = new FakeLauncher(`for step in fifos cgroup mounts; do echo "$step" >&3; done\n${livesOn}`);
    const { ref, gone } = await launch(through(launcher), never);
    expect(await isAlive(ref)).toBe(true);
    process.kill(-ref.pid, "SIGKILL");
    await gone;
    expect(await isAlive(ref)).toBe(false);
  });

  test("a line that comes in pieces is one line", async () => {
    using launcher = new FakeLauncher('printf "prog" >&3\nprintf "ram 1\\n" >&3\nexec sleep 1000');
    await launch(through(launcher), never);
    expect(launcher.isRunning).toBe(true);
  });

  test("a step that fails names itself and says why, and the launcher is gone", async () => {
    using launcher = new FakeLauncher(
      'echo fifos >&3\necho "error mounts 1 Operation not permitted" >&3\nexec sleep 1000',
    );
    const error = await caught(launch(through(launcher), never));
    expect(isSandboxError(error, "start_failed")).toBe(true);
    expect(error).toMatchObject({
      message: "Cannot start the container: mounts: Operation not permitted",
      details: { phase: "mounts", stderr: "Operation not permitted" },
    });
    expect(launcher.isRunning).toBe(false);
  });

  test("the launcher continues when the container's needs are ready, and not before", async () => {
    using launcher = new FakeLauncher(`echo fifos >&3\nread word || exit 9\n${livesOn}`);
    let isLaunched = false;
    let sayReady = (): void => undefined;
    const ready = new Promise<void>((resolve) => {
      sayReady = resolve;
    });
    const launched = launch(through(launcher), { ...never, ready }).then(() => {
      isLaunched = true;
    });
    await expect.poll(() => launcher.isRunning).toBe(true);
    expect(isLaunched).toBe(false);
    sayReady();
    await launched;
    expect(launcher.isRunning).toBe(true);
  });

  test("if the container's needs fail, the launcher is gone and the reason is thrown", async () => {
    using launcher = new FakeLauncher(`echo fifos >&3\nread word || exit 9\n${livesOn}`);
    const reason = new Error("the disk is full");
    expect(await caught(launch(through(launcher), { ...never, ready: Promise.reject(reason) }))).toBe(reason);
    expect(launcher.isRunning).toBe(false);
  });

  test("a launcher that ends before the last step has failed", async () => {
    using launcher = new FakeLauncher("echo fifos >&3\nexit 3");
    const error = await caught(launch(through(launcher), never));
    expect(isSandboxError(error, "start_failed") && error.details).toMatchObject({ phase: "launcher" });
  });

  test("an abort ends the launcher, and its own reason is thrown", async () => {
    using launcher = new FakeLauncher("echo fifos >&3\nexec sleep 1000");
    const controller = new AbortController();
    const launched = caught(launch(through(launcher), { signal: controller.signal }));
    await expect.poll(() => launcher.isRunning).toBe(true);
    const reason = new Error("changed my mind");
    controller.abort(reason);
    expect(await launched).toBe(reason);
    expect(launcher.isRunning).toBe(false);
  });

  test("an abort while the launcher is being started ends it too", async () => {
    using launcher = new FakeLauncher("exec sleep 1000");
    const controller = new AbortController();
    const launched = caught(launch(through(launcher), { signal: controller.signal }));
    const reason = new Error("changed my mind");
    controller.abort(reason);
    expect(await launched).toBe(reason);
    expect(launcher.isRunning).toBe(false);
  });

  test("an abort after the last step leaves the launcher alone", async () => {
    using launcher = new FakeLauncher(livesOn);
    const controller = new AbortController();
    const { ref } = await launch(through(launcher), { signal: controller.signal });
    controller.abort();
    expect(await isAlive(ref)).toBe(true);
  });

  test("a missing guest cannot be started", async () => {
    const error = await caught(launch({ ...command, guestPath: "/no/such/guest" }, never));
    expect(isSandboxError(error, "spawn_failed")).toBe(true);
  });
});
