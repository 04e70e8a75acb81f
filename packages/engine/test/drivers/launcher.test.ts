import { readFileSync, writeFileSync } from "node:fs";
import { isSandboxError } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { launch, launcherArguments, type LauncherCommand } from "../../src/drivers/launcher.ts";
import { isAlive } from "../../src/process/proc-table.ts";
import { caught } from "../support/caught.ts";
import { TemporaryDirectory } from "../support/temporary-directory.ts";

const never = new AbortController().signal;
let directory: TemporaryDirectory;

beforeEach(() => {
  directory = new TemporaryDirectory();
});
afterEach(() => {
  directory[Symbol.dispose]();
});

/** A launcher that does what the script says; descriptor 3 is where it tells of its steps. */
function launcherOf(script: string): LauncherCommand {
  const guestPath = directory.join("launcher");
  writeFileSync(guestPath, `#!/bin/sh\necho $$ > ${directory.join("pid")}\n${script}\n`, { mode: 0o755 });
  return { guestPath, runDir: directory.path, cgroups: [], overlays: [], program: ["true"] };
}

function isRunning(): boolean {
  try {
    const pid = Number(readFileSync(directory.join("pid"), "utf8"));
    return pid > 0 && process.kill(pid, 0);
  } catch {
    return false;
  }
}

describe("its arguments", () => {
  const command: LauncherCommand = {
    guestPath: "/guest",
    runDir: "/data/run",
    cgroups: [],
    overlays: [],
    program: ["/bin/runsc", "--debug", "run"],
  };

  test("the least", () => {
    expect(launcherArguments(command)).toEqual(["launch", "--dir", "/data/run", "--", "/bin/runsc", "--debug", "run"]);
  });

  test("everything, in the order of the steps, and the program's own after a mark", () => {
    const args = launcherArguments({
      ...command,
      cgroups: ["/sys/a", "/sys/b"],
      overlays: [
        { target: "/r", options: "lowerdir=/a" },
        { target: "/r/usr", options: "lowerdir=/b" },
      ],
      enter: { root: "/r", hostname: "box" },
    });
    expect(args.join(" ")).toBe(
      "launch --dir /data/run --cgroup /sys/a --cgroup /sys/b --overlay /r lowerdir=/a --overlay /r/usr lowerdir=/b --enter /r box -- /bin/runsc --debug run",
    );
  });

  test("they reach the launcher as they are", async () => {
    const script = `printf '%s\\n' "$@" > ${directory.join("args")}\necho "program 1" >&3\nexec sleep 1000`;
    const wild = { ...launcherOf(script), program: ["echo", "a b", "", "$HOME", "'"] };
    const { ref } = await launch(wild, never);
    expect(readFileSync(directory.join("args"), "utf8")).toBe(`${launcherArguments(wild).join("\n")}\n`);
    process.kill(-ref.pid, "SIGKILL");
  });
});

describe("a start", () => {
  test("it resolves with the last step, to a launcher that can be found again", async () => {
    const { ref, gone } = await launch(
      launcherOf('for step in fifos cgroup mounts "program 77"; do echo "$step" >&3; done\nexec sleep 1000'),
      never,
    );
    expect(await isAlive(ref)).toBe(true);
    process.kill(-ref.pid, "SIGKILL");
    await gone;
    expect(await isAlive(ref)).toBe(false);
  });

  test("a line that comes in pieces is one line", async () => {
    const { ref } = await launch(launcherOf('printf "prog" >&3\nprintf "ram 1\\n" >&3\nexec sleep 1000'), never);
    process.kill(-ref.pid, "SIGKILL");
  });

  test("a step that fails names itself and says why, and the launcher is gone", async () => {
    const command = launcherOf('echo fifos >&3\necho "error mounts 1 Operation not permitted" >&3\nexec sleep 1000');
    const error = await caught(launch(command, never));
    expect(isSandboxError(error, "start_failed")).toBe(true);
    expect(error).toMatchObject({
      message: "Cannot start the container: mounts: Operation not permitted",
      details: { phase: "mounts", stderr: "Operation not permitted" },
    });
    expect(isRunning()).toBe(false);
  });

  test("a launcher that ends before the last step has failed", async () => {
    const error = await caught(launch(launcherOf("echo fifos >&3\nexit 3"), never));
    expect(isSandboxError(error, "start_failed") && error.details).toMatchObject({ phase: "launcher" });
  });

  test("an abort ends the launcher, and is told with its own reason", async () => {
    const controller = new AbortController();
    const launched = caught(launch(launcherOf("echo fifos >&3\nexec sleep 1000"), controller.signal));
    await expect.poll(isRunning).toBe(true);
    const reason = new Error("changed my mind");
    controller.abort(reason);
    expect(await launched).toBe(reason);
    expect(isRunning()).toBe(false);
  });

  test("an abort while the launcher is being started ends it too", async () => {
    const controller = new AbortController();
    const launched = caught(launch(launcherOf("exec sleep 1000"), controller.signal));
    const reason = new Error("changed my mind");
    controller.abort(reason);
    expect(await launched).toBe(reason);
    expect(isRunning()).toBe(false);
  });

  test("an abort after the last step leaves the launcher alone", async () => {
    const controller = new AbortController();
    const { ref } = await launch(launcherOf('echo "program 1" >&3\nexec sleep 1000'), controller.signal);
    controller.abort();
    expect(await isAlive(ref)).toBe(true);
    process.kill(-ref.pid, "SIGKILL");
  });

  test("a guest that is not there cannot be started", async () => {
    const error = await caught(launch({ ...launcherOf(""), guestPath: directory.join("none") }, never));
    expect(isSandboxError(error, "spawn_failed")).toBe(true);
  });
});
