import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, rmdirSync, symlinkSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { isSandboxError } from "@atoll/protocol";
import { expect, test } from "vitest";
import { EngineLock } from "../../src/store/engine-lock.ts";
import { caught } from "../support/caught.ts";
import { TemporaryDirectory } from "../support/temporary-directory.ts";

test("the second to ask is refused, and told who has it", async () => {
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

test("another way to the same directory is no way around it", async () => {
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

test("of many that ask at once exactly one gets it", async () => {
  using directory = new TemporaryDirectory();
  const asked = await Promise.allSettled(
    Array.from({ length: 10 }, () => EngineLock.acquire(directory.join("engine.lock"))),
  );
  const got = asked.filter((result) => result.status === "fulfilled");
  expect(got).toHaveLength(1);
  await got[0]?.value.release();
});

test("once released it is free, and nothing of it is left", async () => {
  using directory = new TemporaryDirectory();
  const first = await EngineLock.acquire(directory.join("engine.lock"));
  await first.release();
  expect(existsSync(directory.join("engine.lock"))).toBe(false);
  const second = await EngineLock.acquire(directory.join("engine.lock"));
  await second.release();
});

test("one that cannot be written down is not held", async () => {
  using directory = new TemporaryDirectory();
  const path = directory.join("engine.lock");
  mkdirSync(path);
  await expect(EngineLock.acquire(path)).rejects.toMatchObject({ code: "EISDIR" });
  rmdirSync(path);
  const lock = await EngineLock.acquire(path);
  await lock.release();
});

test("it is free the moment its holder is killed", async () => {
  using directory = new TemporaryDirectory();
  const path = directory.join("engine.lock");
  const program = fileURLToPath(new URL("../support/lock-holder.ts", import.meta.url));
  const holder = spawn(process.execPath, ["--conditions=source", "--import", "tsx", program, path], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    await once(holder.stdout, "data");
    const error = await caught(EngineLock.acquire(path));
    expect(isSandboxError(error, "in_use") && error.details["pid"]).toBe(String(holder.pid));
  } finally {
    holder.kill("SIGKILL");
    await once(holder, "exit");
  }
  expect(readFileSync(path, "utf8")).toBe(`${holder.pid}\n`);
  const lock = await EngineLock.acquire(path);
  expect(readFileSync(path, "utf8")).toBe(`${process.pid}\n`);
  await lock.release();
});
