import { spawn } from "node:child_process";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { withLock } from "../../tools/setup/lock.mjs";

let dir: string;
let path: string;
const said: string[] = [];
const options = { timeoutMs: 10_000, report: { say: (text: string) => void said.push(text) } };

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-lock-"));
  path = join(dir, "setup.lock");
  said.length = 0;
});

afterEach(async () => {
  await rm(dir, { recursive: true });
});

test("the second holder's work begins after the first one's has ended", async () => {
  const events: string[] = [];
  const work = (name: string) =>
    withLock(path, options, async () => {
      events.push(`${name} begins`);
      await new Promise((resolve) => setImmediate(resolve));
      events.push(`${name} ends`);
    });
  await Promise.all([work("a"), work("b"), work("c")]);
  for (let at = 0; at < events.length; at += 2) {
    expect(events[at + 1]).toBe(events[at]?.replace("begins", "ends"));
  }
  expect(events).toHaveLength(6);
});

test("a process that waits reports the holder", async () => {
  const untilSaid = async (): Promise<void> => {
    await expect.poll(() => said.length).toBeGreaterThan(0);
  };
  await Promise.all([withLock(path, options, untilSaid), withLock(path, options, untilSaid)]);
  expect(said).toEqual([expect.stringContaining(String(process.pid))]);
});

test("no lock file is left when the work fails", async () => {
  const failing = withLock(path, options, () => Promise.reject(new Error("no")));
  await expect(failing).rejects.toThrow("no");
  expect(await readdir(dir)).toEqual([]);
});

test("the lock of a process that is gone is broken by exactly one of many processes", async () => {
  const gone = spawn(process.execPath, ["-e", ""]);
  await new Promise((resolve) => gone.on("close", resolve));
  await writeFile(path, JSON.stringify({ pid: gone.pid, start: "1", token: "t" }));
  let holders = 0;
  let most = 0;
  await Promise.all(
    Array.from({ length: 8 }, () =>
      withLock(path, options, async () => {
        holders += 1;
        most = Math.max(most, holders);
        await new Promise((resolve) => setImmediate(resolve));
        holders -= 1;
      }),
    ),
  );
  expect(most).toBe(1);
  expect(await readdir(dir)).toEqual([]);
});

test("a later process with the same pid does not count as the holder", async () => {
  await writeFile(path, JSON.stringify({ pid: process.pid, start: "1", token: "t" }));
  expect(await withLock(path, options, () => Promise.resolve("mine"))).toBe("mine");
});

test("a lock that is held past the deadline is an error that names the holder", async () => {
  await withLock(path, options, async () => {
    const second = withLock(path, { ...options, timeoutMs: 0 }, () => Promise.resolve());
    await expect(second).rejects.toThrow(`process ${process.pid} still holds it`);
  });
});
