import { readdir, readFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { execOnHost, runCommand } from "../../src/client/host-command.ts";

const { signal } = new AbortController();
const timeoutMs = 60_000;
const shell = (line: string): string[] => ["sh", "-c", line];

/** How many processes of this machine have the word among their arguments. */
async function countOf(word: string): Promise<number> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const commands = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")));
  return commands.filter((command) => command.split("\0").includes(word)).length;
}

test("the result says what was run, how it ended and what it printed", async () => {
  const argv = shell('pwd; echo "$NAME"; echo err >&2; exit 3');
  const result = await runCommand({ argv, cwd: "/usr", env: { NAME: "value" }, timeoutMs }, signal);
  expect(result).toMatchObject({
    argv,
    cwd: "/usr",
    env: { NAME: "value" },
    end: { kind: "exit", code: 3 },
    stdout: "/usr\nvalue\n",
    stderr: "err\n",
    truncated: false,
  });
  expect(Number.isNaN(Date.parse(result.startedAt))).toBe(false);
  expect(result.durationMs).toBeGreaterThan(0);
});

test("nothing of our own environment is inherited but what every program needs", async () => {
  const { stdout } = await runCommand({ argv: ["env"], timeoutMs }, signal);
  expect(stdout.split("\n").map((line) => line.split("=")[0])).toEqual(expect.arrayContaining(["PATH", "LANG"]));
  expect(stdout).not.toContain("ATOLL_TEST_ROOT");
});

test("a program that is not there is lost", async () => {
  const { end } = await runCommand({ argv: ["no-such-program"], timeoutMs }, signal);
  expect(end).toMatchObject({ kind: "lost", reason: expect.stringContaining("no-such-program") });
});

test("the death by a signal is not an exit code", async () => {
  expect((await runCommand({ argv: shell("kill -TERM $$"), timeoutMs }, signal)).end).toEqual({
    kind: "signal",
    signal: "SIGTERM",
  });
});

test("input comes in pieces, and a program that reads none of it is no error", async () => {
  async function* pieces(): AsyncGenerator<Uint8Array> {
    for (let count = 0; count < 100; count += 1) yield Buffer.alloc(10_000, "x");
  }
  const counted = await runCommand({ argv: ["wc", "-c"], stdin: pieces(), timeoutMs }, signal);
  expect(counted.stdout.trim()).toBe("1000000");
  const deaf = await runCommand({ argv: ["true"], stdin: pieces(), timeoutMs }, signal);
  expect(deaf.end).toEqual({ kind: "exit", code: 0 });
});

test("the time limit ends the whole process group, also one that ignores requests to end", async () => {
  const line = "trap '' TERM; sh -c \"trap '' TERM; sleep 918273\" & echo started; sleep 918273";
  const { end, stdout } = await runCommand({ argv: shell(line), timeoutMs: 500 }, signal);
  expect({ end, stdout }).toEqual({ end: { kind: "timeout", limitMs: 500, reason: "total" }, stdout: "started\n" });
  expect(await countOf("918273")).toBe(0);
});

test("silence beyond its limit ends the program", async () => {
  const argv = shell("echo once; sleep 827364");
  const { end } = await runCommand({ argv, silentTimeoutMs: 500, timeoutMs }, signal);
  expect(end).toEqual({ kind: "timeout", limitMs: 500, reason: "silent" });
  expect(await countOf("827364")).toBe(0);
});

test("what has to be killed first is killed first", async () => {
  const order: string[] = [];
  const kill = async () => void order.push(`killed while ${await countOf("736455")} runs`);
  await runCommand({ argv: ["sleep", "736455"], timeoutMs: 300, kill }, signal);
  expect(order).toEqual(["killed while 1 runs"]);
  expect(await countOf("736455")).toBe(0);
});

test("an abort rejects with its reason when the program is gone", async () => {
  const abort = new AbortController();
  const reason = new Error("enough");
  const sink = { write: () => abort.abort(reason) };
  const running = execOnHost({ argv: shell("echo go; sleep 645546"), timeoutMs }, sink, abort.signal);
  await expect(running).rejects.toBe(reason);
  expect(await countOf("645546")).toBe(0);
});

test("a sink that fails ends the program, and its error is the result", async () => {
  const reason = new Error("full");
  const sink = { write: () => Promise.reject(reason) };
  const running = execOnHost({ argv: shell("echo go; sleep 554637"), timeoutMs }, sink, signal);
  await expect(running).rejects.toBe(reason);
  await expect.poll(() => countOf("554637")).toBe(0);
});

test("output without an end is kept up to a limit", async () => {
  const { stdout, truncated } = await runCommand({ argv: shell("head -c 9000000 /dev/zero"), timeoutMs }, signal);
  expect({ bytes: stdout.length, truncated }).toEqual({ bytes: 4 * 1024 * 1024, truncated: true });
});
