import { spawn, type ChildProcessByStdio } from "node:child_process";
import { once } from "node:events";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmdirSync, symlinkSync } from "node:fs";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { isSandboxError } from "@atoll/protocol";
import { expect, test } from "vitest";
import { isSameDirectory, type DirectoryMark } from "../../src/store/directory-mark.ts";
import { EngineLock } from "../../src/store/engine-lock.ts";
import { caught } from "../support/caught.ts";
import { TemporaryDirectory } from "../support/temporary-directory.ts";

test("the second process is refused, with the id of the holder", async () => {
  using directory = new TemporaryDirectory();
  const lock = await EngineLock.acquire(directory.join("engine.lock"));
  const error = await caught(EngineLock.acquire(directory.join("engine.lock")));
  expect(isSandboxError(error, "in_use")).toBe(true);
  expect(error).toMatchObject({
    message: expect.stringContaining(`process ${process.pid} uses it`),
    details: { pid: String(process.pid), directory: directory.path },
  });
  await lock.release();
});

test("another path to the same directory has the same lock", async () => {
  using directory = new TemporaryDirectory();
  using other = new TemporaryDirectory();
  symlinkSync(directory.path, other.join("link"));
  const lock = await EngineLock.acquire(directory.join("engine.lock"));
  const error = await caught(EngineLock.acquire(other.join("link", "engine.lock")));
  expect(isSandboxError(error, "in_use")).toBe(true);
  await lock.release();
});

test("another directory is another lock", async () => {
  using one = new TemporaryDirectory();
  using other = new TemporaryDirectory();
  const locks = await Promise.all([one, other].map((directory) => EngineLock.acquire(directory.join("engine.lock"))));
  await Promise.all(locks.map((lock) => lock.release()));
});

test("of many simultaneous attempts exactly one succeeds", async () => {
  using directory = new TemporaryDirectory();
  const asked = await Promise.allSettled(
    Array.from({ length: 10 }, () => EngineLock.acquire(directory.join("engine.lock"))),
  );
  const got = asked.filter((result) => result.status === "fulfilled");
  expect(got).toHaveLength(1);
  await got[0]?.value.release();
});

test("a released lock is free, and nothing of it is left", async () => {
  using directory = new TemporaryDirectory();
  const first = await EngineLock.acquire(directory.join("engine.lock"));
  await first.release();
  expect(existsSync(directory.join("engine.lock"))).toBe(false);
  expect(readdirSync(directory.join("lock"), { recursive: true })).toEqual(["holder"]);
  const second = await EngineLock.acquire(directory.join("engine.lock"));
  await second.release();
});

test("a lock whose holder cannot be written is not held", async () => {
  using directory = new TemporaryDirectory();
  const path = directory.join("engine.lock");
  mkdirSync(path);
  await expect(EngineLock.acquire(path)).rejects.toMatchObject({ code: "EISDIR" });
  rmdirSync(path);
  const lock = await EngineLock.acquire(path);
  await lock.release();
});

test("the lock is free as soon as its holder is killed", async () => {
  using directory = new TemporaryDirectory();
  const path = directory.join("engine.lock");
  const holder = await startHolder(path);
  try {
    const error = await caught(EngineLock.acquire(path));
    expect(isSandboxError(error, "in_use") && error.details["pid"]).toBe(String(holder.pid));
  } finally {
    holder.kill("SIGKILL");
    await once(holder, "exit");
  }
  expect(readFileSync(path, "utf8")).toBe(`${holder.pid}\n`);
  const lock = await EngineLock.acquire(path);
  expect(readFileSync(path, "utf8")).toBe(`${process.pid}\n`);
  expect(readdirSync(directory.join("lock"))).toHaveLength(2);
  await lock.release();
});

test("of many attempts to take a dead holder's lock exactly one succeeds", async () => {
  using directory = new TemporaryDirectory();
  const path = directory.join("engine.lock");
  const holder = await startHolder(path);
  holder.kill("SIGKILL");
  await once(holder, "exit");
  const asked = await Promise.allSettled(Array.from({ length: 10 }, () => EngineLock.acquire(path)));
  const got = asked.filter((result) => result.status === "fulfilled");
  expect(got).toHaveLength(1);
  expect(readdirSync(directory.join("lock", "holder"))).toHaveLength(1);
  await got[0]?.value.release();
});

test("a holder in another container, with a network of its own, is seen, also when it is stopped", async () => {
  using directory = new TemporaryDirectory();
  const path = directory.join("engine.lock");
  const holder = await startHolder(path, ["unshare", process.getuid?.() === 0 ? "-n" : "-rn"]);
  try {
    expect(await caught(EngineLock.acquire(path))).toMatchObject({ code: "in_use" });
    holder.kill("SIGSTOP");
    expect(await caught(EngineLock.acquire(path))).toMatchObject({ code: "in_use" });
  } finally {
    holder.kill("SIGKILL");
    await once(holder, "exit");
  }
  const lock = await EngineLock.acquire(path);
  await lock.release();
});

/** Starts a process that holds the lock, through another program that executes it. */
async function startHolder(
  path: string,
  through: readonly string[] = [],
): Promise<ChildProcessByStdio<null, Readable, null>> {
  const program = fileURLToPath(new URL("../support/lock-holder.ts", import.meta.url));
  const argv = [...through, process.execPath, "--conditions=source", "--import", "tsx", program, path];
  const holder = spawn(argv[0] ?? "", argv.slice(1), { stdio: ["ignore", "pipe", "inherit"] });
  await once(holder.stdout, "data");
  return holder;
}

test("the directory of the lock is recognized after a move, and differs from a copy", async () => {
  using directory = new TemporaryDirectory();
  const markIn = async (name: string): Promise<DirectoryMark> => {
    const lock = await EngineLock.acquire(directory.join(name, "engine.lock"));
    await lock.release();
    return lock.directory;
  };
  mkdirSync(directory.join("first"));
  const first = await markIn("first");
  cpSync(directory.join("first"), directory.join("copy"), { recursive: true, preserveTimestamps: true });
  expect(isSameDirectory(await markIn("copy"), first)).toBe(false);
  renameSync(directory.join("first"), directory.join("moved"));
  const moved = await markIn("moved");
  expect(isSameDirectory(moved, first)).toBe(true);
  expect(moved.device).toBe(first.device);
});

test("directories with the same inode differ by their birth time, where that is known", () => {
  const mark = { inode: "12", bornNs: "1" };
  expect(isSameDirectory(mark, { inode: "12", bornNs: "2" })).toBe(false);
  expect(isSameDirectory(mark, { inode: "12" })).toBe(true);
  expect(isSameDirectory(mark, { inode: "13", bornNs: "1" })).toBe(false);
});
