import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { isSandboxError } from "@atoll/protocol";
import { afterEach, describe, expect, test } from "vitest";
import { type HostProcess, type HostProcessOptions, startHostProcess } from "../../src/process/host-process.ts";
import { groupMembers, readProcessStat } from "../../src/process/proc-table.ts";
import type { OutputEvent } from "../../src/process/process.ts";
import { withTimeToStart } from "../support/time-to-start.ts";

const started: HostProcess[] = [];
afterEach(async () => {
  for (const process of started.splice(0)) {
    process.discardOutput();
    await process.kill("SIGKILL");
    await process.wait();
  }
});

async function start(file: string, args: string[], options: Partial<HostProcessOptions> = {}): Promise<HostProcess> {
  const process = await startHostProcess(file, args, { signal: new AbortController().signal, ...options });
  started.push(process);
  return process;
}

const shell = (script: string, options?: Partial<HostProcessOptions>): Promise<HostProcess> =>
  start("sh", ["-c", script], options);

async function textOf(process: HostProcess): Promise<Record<OutputEvent["stream"], string>> {
  const output = { stdout: "", stderr: "" };
  for await (const { stream, data } of process) output[stream] += data.toString();
  return output;
}

async function firstLine(process: HostProcess): Promise<string> {
  for await (const { data } of process) return data.toString().trim();
  throw new Error("There was no output");
}

const isRunning = async (pid: number): Promise<boolean> => {
  const stat = await readProcessStat(pid);
  return stat !== undefined && stat.state !== "Z";
};

describe("the end", () => {
  test.for([
    { script: "exit 0", exitCode: 0, signal: null },
    { script: "exit 42", exitCode: 42, signal: null },
    { script: "kill -SEGV $$", exitCode: null, signal: "SIGSEGV" },
    { script: "kill -IO $$", exitCode: null, signal: "SIGIO" },
  ])("$script is reported as it happened", async ({ script, exitCode, signal }) => {
    const process = await shell(script);
    expect(await process.wait()).toMatchObject({ exitCode, signal, timedOut: false });
    expect(process.endReason).toBeUndefined();
  });

  test("a program that does not exist cannot be started", async () => {
    const error: unknown = await start("/no/such/program", []).catch((error: unknown) => error);
    expect(isSandboxError(error, "spawn_failed")).toBe(true);
    expect(String(error)).toContain("Cannot start /no/such/program: ENOENT");
  });

  test.for([
    { what: "a file that is not a program", file: "/etc/passwd", args: [], options: {} },
    { what: "a working directory that is missing", file: "true", args: [], options: { cwd: "/no/such" } },
    { what: "an argument with a NUL in it", file: "true", args: ["a\0b"], options: {} },
  ])("$what is spawn_failed", async ({ file, args, options }) => {
    await expect(start(file, args, options)).rejects.toSatisfy((error) => isSandboxError(error, "spawn_failed"));
  });

  test("a signal that has aborted already starts nothing", async () => {
    await expect(start("true", [], { signal: AbortSignal.abort(new Error("gone home")) })).rejects.toThrow("gone home");
  });

  test("what a background process left in the pipe does not hold the reader", async () => {
    const process = await shell("sleep 1000 & echo $!");
    const { stdout } = await textOf(process);
    expect(await process.wait()).toMatchObject({ exitCode: 0 });
    expect(await isRunning(Number(stdout))).toBe(true);
    globalThis.process.kill(Number(stdout), "SIGKILL");
  });

  test("a background process that writes for ever does not hold the reader", async () => {
    const process = await shell("yes & echo $! >&2");
    const { stderr } = await textOf(process);
    globalThis.process.kill(Number(stderr), "SIGKILL");
    expect(await process.wait()).toMatchObject({ exitCode: 0 });
  });

  test("output from just before the end is read whole", async () => {
    const process = await shell("head -c 200000 /dev/zero; head -c 100000 /dev/zero >&2; sleep 1000 & exit 3");
    const { stdout, stderr } = await textOf(process);
    expect([stdout.length, stderr.length]).toEqual([200_000, 100_000]);
    expect(await process.wait()).toMatchObject({ exitCode: 3 });
    await clearGroup(process.pid);
  });
});

async function clearGroup(groupId: number): Promise<void> {
  for (const pid of await groupMembers(groupId)) globalThis.process.kill(pid, "SIGKILL");
}

describe("being ended", () => {
  test("a time limit ends the process and says so", async () => {
    const process = await shell("sleep 1000", { timeoutMs: 20 });
    process.discardOutput();
    expect(await process.wait()).toMatchObject({ exitCode: null, signal: "SIGTERM", timedOut: true });
    expect(process.endReason).toBe("timeout");
  });

  test("an abort ends the process", async () => {
    const controller = new AbortController();
    const process = await shell("echo up; sleep 1000", { signal: controller.signal });
    await firstLine(process);
    controller.abort();
    expect(await process.wait()).toMatchObject({ signal: "SIGTERM", timedOut: false });
    expect(process.endReason).toBe("abort");
  });

  test("the first reason wins", async () => {
    const { exit, reason } = await withTimeToStart(
      async (timeoutMs) => {
        const controller = new AbortController();
        const process = await shell('trap "" TERM; echo up; while :; do sleep 0.01; done', {
          signal: controller.signal,
          timeoutMs,
          graceMs: 100,
        });
        const said = textOf(process);
        await expect.poll(() => process.endReason, { interval: 1 }).toBe("timeout");
        controller.abort();
        return { exit: await process.wait(), reason: process.endReason, ...(await said) };
      },
      ({ stdout }) => stdout !== "",
    );
    expect(exit).toMatchObject({ signal: "SIGKILL", timedOut: true });
    expect(reason).toBe("timeout");
  });

  test("a process that cleans up on SIGTERM within its grace exits with its own code", async () => {
    const { stdout, exit } = await withTimeToStart(
      async (timeoutMs) => {
        const process = await shell("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done", {
          timeoutMs,
          graceMs: 60_000,
        });
        return { ...(await textOf(process)), exit: await process.wait() };
      },
      ({ stdout }) => stdout !== "",
    );
    expect(stdout).toBe("up\nbye\n");
    expect(exit).toMatchObject({ exitCode: 7, timedOut: true });
  });

  test.for([
    { child: "that ignores SIGTERM", script: 'trap "" TERM; sleep 1000 & echo $!; wait' },
    {
      child: "that ignores SIGTERM and outlives its parent",
      script: '(trap "" TERM; exec sleep 1000) & echo $!; wait',
    },
    {
      child: "that ignores SIGTERM and has closed its pipes",
      script: '(trap "" TERM; exec sleep 1000 </dev/null >/dev/null 2>&1) & echo $!; wait',
    },
  ])("a grandchild $child is gone before the wait is over", async ({ script }) => {
    const controller = new AbortController();
    const process = await shell(script, { signal: controller.signal, graceMs: 50 });
    const grandchild = Number(await firstLine(process));
    expect(await isRunning(grandchild)).toBe(true);
    controller.abort();
    await process.wait();
    expect(await groupMembers(process.pid)).toEqual([]);
    expect(await isRunning(grandchild)).toBe(false);
  });

  test("SIGKILL takes the whole group with it", async () => {
    const process = await shell('(trap "" TERM; exec sleep 1000 >/dev/null 2>&1) & echo $!; wait');
    const grandchild = Number(await firstLine(process));
    await process.kill("SIGKILL");
    expect(await process.wait()).toMatchObject({ signal: "SIGKILL", timedOut: false });
    expect(await isRunning(grandchild)).toBe(false);
  });

  test("a signal to a process that has ended does nothing", async () => {
    const process = await shell("exit 0");
    await process.wait();
    await process.kill("SIGKILL");
    expect(await process.wait()).toMatchObject({ exitCode: 0 });
  });

  test("no grace means SIGKILL at once", async () => {
    const process = await shell("sleep 1000", { timeoutMs: 10, graceMs: 0 });
    expect(await process.wait()).toMatchObject({ signal: "SIGKILL", timedOut: true });
  });
});

describe("output", () => {
  test("events of both streams come in the order of reading, with offsets", async () => {
    const process = await shell("echo 1; read x; echo 2 >&2; read x; echo 3", { stdin: "pipe" });
    const events: Omit<OutputEvent, "data">[] = [];
    for await (const { data, ...event } of process) {
      events.push(event);
      expect(data.toString()).toMatch(/^\d\n$/);
      if (events.length < 3) await process.writeStdin("\n");
    }
    expect(events).toEqual([
      { stream: "stdout", offset: 0, at: 0 },
      { stream: "stderr", offset: 0, at: 2 },
      { stream: "stdout", offset: 2, at: 4 },
    ]);
  });

  test("a slow reader makes the process wait, and misses nothing", async () => {
    const process = await start("head", ["-c", "20000000", "/dev/zero"], { windowBytes: 65_536 });
    expect(await bytesWrittenUntilBlocked(process.pid)).toBeLessThan(2_000_000);
    let expectedOffset = 0;
    for await (const { data, offset } of process) {
      expect(offset).toBe(expectedOffset);
      expectedOffset += data.length;
    }
    expect(expectedOffset).toBe(20_000_000);
  });

  test("output without a reader does not grow in memory", async () => {
    const process = await start("head", ["-c", "20000000", "/dev/zero"], { windowBytes: 65_536 });
    expect(await bytesWrittenUntilBlocked(process.pid)).toBeLessThan(2_000_000);
    process.discardOutput();
    expect(await process.wait()).toMatchObject({ exitCode: 0 });
  });

  test("what waits in the pipe when the process ends is not lost", async () => {
    const process = await start("head", ["-c", "100000", "/dev/zero"], { windowBytes: 1000 });
    await process.wait();
    expect((await textOf(process)).stdout.length).toBe(100_000);
  });

  test("leaving the loop early throws the rest away and does not end the process", async () => {
    const process = await shell("echo first; head -c 2000000 /dev/zero; exit 5");
    expect((await firstLine(process)).startsWith("first")).toBe(true);
    expect(await process.wait()).toMatchObject({ exitCode: 5 });
  });

  test("there is one reader", async () => {
    const process = await shell("exit 0");
    await textOf(process);
    expect(() => process[Symbol.asyncIterator]()).toThrow("one reader");
  });
});

async function bytesWritten(pid: number): Promise<number> {
  return Number(/^wchar: (\d+)$/m.exec(await readFile(`/proc/${pid}/io`, "utf8"))?.[1]);
}

/** Resolves when the process is blocked: it sleeps, and has written nothing more since the last look. */
async function bytesWrittenUntilBlocked(pid: number): Promise<number> {
  let seen = 0;
  const isBlocked = async (): Promise<boolean> => {
    const before = seen;
    seen = await bytesWritten(pid);
    return seen > 0 && seen === before && (await readProcessStat(pid))?.state === "S";
  };
  await expect.poll(isBlocked).toBe(true);
  return seen;
}

describe("stdin", () => {
  test("what was written before the close is delivered", async () => {
    const process = await start("wc", ["-c"], { stdin: "pipe" });
    await process.writeStdin(Buffer.alloc(1_000_000));
    await process.writeStdin("and more");
    await process.closeStdin();
    await process.closeStdin();
    expect((await textOf(process)).stdout).toBe("1000008\n");
    await expect(process.writeStdin("late")).rejects.toSatisfy((error) => isSandboxError(error, "invalid_state"));
  });

  test("a write waits for a process that does not read, and is refused when it ends", async () => {
    const process = await shell("sleep 1000", { stdin: "pipe" });
    const written = process.writeStdin(Buffer.alloc(4_000_000)).then(
      () => "written",
      (error: unknown) => isSandboxError(error, "invalid_state"),
    );
    await process.kill("SIGKILL");
    expect(await written).toBe(true);
    await process.closeStdin();
  });

  test("without a pipe the process reads an end of file", async () => {
    const process = await start("wc", ["-c"]);
    expect((await textOf(process)).stdout).toBe("0\n");
    await expect(process.writeStdin("x")).rejects.toSatisfy((error) => isSandboxError(error, "invalid_state"));
    await process.closeStdin();
  });
});

describe("what the process is given", () => {
  test("the process inherits only the allowed variables of our environment", async () => {
    globalThis.process.env["ATOLL_TEST_SECRET"] = "s3cret";
    const process = await start("/usr/bin/env", [], { env: { GIVEN: "1" }, cwd: tmpdir() });
    const names = (await textOf(process)).stdout
      .trim()
      .split("\n")
      .map((line) => line.split("=")[0]);
    delete globalThis.process.env["ATOLL_TEST_SECRET"];
    expect(new Set(names)).toEqual(new Set(["GIVEN", "LANG", "PATH"]));
  });

  test("the process leads a process group and a session of its own", async () => {
    const process = await shell("read x", { stdin: "pipe" });
    const stat = await readFile(`/proc/${process.pid}/stat`, "utf8");
    const [, , groupId, sessionId] = stat
      .slice(stat.lastIndexOf(")") + 2)
      .split(" ")
      .map(Number);
    expect([groupId, sessionId]).toEqual([process.pid, process.pid]);
  });

  test("descriptor 3 can be read", async () => {
    const process = await shell("echo out; echo status >&3", { extraFds: ["pipe"] });
    expect(await text(process.readable(3))).toBe("status\n");
    expect((await textOf(process)).stdout).toBe("out\n");
    expect(() => process.readable(4)).toThrow("was not requested");
  });

  test("a program that is to outlive the server gets no pipe for its output", async () => {
    await expect(start("true", [], { detachedFromServer: true, stdout: "pipe" })).rejects.toThrow(
      "broken output pipes",
    );
  });

  test("a detached program outlives the server and does not keep it alive", async () => {
    const source = fileURLToPath(new URL("../../src/process/host-process.ts", import.meta.url));
    const script = `
      import { startHostProcess } from ${JSON.stringify(source)};
      const signal = new AbortController().signal;
      const child = await startHostProcess("sleep", ["1000"], { signal, detachedFromServer: true });
      console.log(child.pid);`;
    const server = await start(globalThis.process.execPath, [
      "--conditions=source",
      "--import",
      "tsx",
      "--input-type=module",
      "--eval",
      script,
    ]);
    const { stdout, stderr } = await textOf(server);
    expect(stderr).toBe("");
    expect(await server.wait()).toMatchObject({ exitCode: 0 });
    const survivor = Number(stdout);
    expect(await isRunning(survivor)).toBe(true);
    globalThis.process.kill(survivor, "SIGKILL");
  });
});
