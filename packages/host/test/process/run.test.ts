import { readdir, readFile } from "node:fs/promises";
import { isSandboxError } from "@atoll/protocol";
import { describe, expect, test } from "vitest";
import { run, type RunOptions } from "../../src/process/run.ts";

const shell = (script: string, options: Partial<RunOptions> = {}): ReturnType<typeof run> =>
  run("sh", ["-c", script], { signal: new AbortController().signal, timeoutMs: 30_000, ...options });

async function isRunningWith(argument: string): Promise<boolean> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const commands = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")));
  return commands.some((command) => command === `sleep\0${argument}\0`);
}

describe("run", () => {
  test("a non-zero exit is a result", async () => {
    expect(await shell("echo out; echo err >&2; exit 3")).toEqual({
      exitCode: 3,
      signal: null,
      stdout: "out\n",
      stderr: "err\n",
      truncated: false,
    });
  });

  test("a death by signal is a result", async () => {
    expect(await shell("kill -9 $$")).toMatchObject({ exitCode: null, signal: "SIGKILL" });
  });

  test("input reaches the program", async () => {
    expect(await shell("cat", { input: "hello" })).toMatchObject({ exitCode: 0, stdout: "hello" });
  });

  test("a program may ignore its input", async () => {
    expect(await shell("exit 0", { input: Buffer.alloc(4_000_000) })).toMatchObject({ exitCode: 0 });
  });

  test("output beyond the limit is thrown away, and the program does not notice", async () => {
    const result = await shell("head -c 5000000 /dev/zero; echo e >&2; exit 4", { maxOutputBytes: 1000 });
    expect(result).toMatchObject({ exitCode: 4, stderr: "e\n", truncated: true });
    expect(result.stdout.length).toBe(1000);
  });

  test("output of exactly the limit is whole", async () => {
    expect(await shell("printf 12345", { maxOutputBytes: 5 })).toMatchObject({ stdout: "12345", truncated: false });
  });

  test("a character that lies across two reads stays whole", async () => {
    const script = "printf '\\303'; printf '\\244'";
    expect((await shell(`(${script.replace("; ", "; sleep 0.05; ")})`)).stdout).toBe("ä");
  });

  test("the time limit is an error of its own", async () => {
    const error: unknown = await shell("echo late >&2; sleep 1000", { timeoutMs: 50 }).catch((error: unknown) => error);
    expect(isSandboxError(error, "timed_out") && error.details).toMatchObject({ stderr: "late\n" });
  });

  test("an abort is the caller's own reason, and leaves no process behind", async () => {
    const controller = new AbortController();
    const mark = `1000.${process.pid}`;
    const result = shell(`trap "" TERM; sleep ${mark} & wait`, { signal: controller.signal, graceMs: 20 });
    const caught = result.catch((error: unknown) => error);
    await expect.poll(() => isRunningWith(mark)).toBe(true);
    controller.abort(new Error("no longer wanted"));
    expect(await caught).toEqual(new Error("no longer wanted"));
    expect(await isRunningWith(mark)).toBe(false);
  });

  test("a program that cannot start is spawn_failed", async () => {
    const error: unknown = await run("/no/such", [], {
      signal: new AbortController().signal,
      timeoutMs: 1000,
    }).catch((error: unknown) => error);
    expect(isSandboxError(error, "spawn_failed")).toBe(true);
  });
});
