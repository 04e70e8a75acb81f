import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { link, mkdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";

const pollMs = 50;

/** Breaking a lock takes microseconds; a marker this old was left by a process that died while breaking one. */
const breakingStaleMs = 10_000;

/**
 * Runs `work` while no other process holds the lock at `path`. A lock whose process is gone is broken.
 *
 * @template T
 * @param {string} path
 * @param {{ timeoutMs: number, report: { say(text: string): void } }} options
 * @param {() => Promise<T>} work
 * @returns {Promise<T>}
 */
export async function withLock(path, { timeoutMs, report }, work) {
  const owner = JSON.stringify({ pid: process.pid, start: startOf(process.pid), token: randomUUID() });
  await mkdir(dirname(path), { recursive: true });
  await acquire(path, owner, Date.now() + timeoutMs, report);
  try {
    return await work();
  } finally {
    if ((await readIfThere(path)) === owner) await rm(path, { force: true });
  }
}

/**
 * @param {string} path
 * @param {string} owner
 * @param {number} deadlineMs
 * @param {{ say(text: string): void }} report
 */
async function acquire(path, owner, deadlineMs, report) {
  // The lock file is linked into place with its content, so that no process ever reads a lock without an owner.
  const draft = `${path}.${process.pid}.${randomUUID()}`;
  await writeFile(draft, owner);
  try {
    let isFirst = true;
    while (!(await linkExclusively(draft, path))) {
      const holder = await readIfThere(path);
      if (holder === undefined) continue;
      if (!isHolderAlive(holder)) {
        await breakLock(path, holder);
        continue;
      }
      if (isFirst) report.say(`Waiting for another set-up (process ${pidOf(holder)}) to finish …`);
      isFirst = false;
      if (Date.now() > deadlineMs) {
        throw new Error(`Cannot lock ${path}: process ${pidOf(holder)} still holds it. End it, or remove the file`);
      }
      await delay(pollMs);
    }
  } finally {
    await rm(draft, { force: true });
  }
}

/**
 * @param {string} from
 * @param {string} to
 */
async function linkExclusively(from, to) {
  try {
    await link(from, to);
    return true;
  } catch (error) {
    if (hasCode(error, "EEXIST")) return false;
    throw error;
  }
}

/**
 * Removes the lock of a dead owner. Several processes may notice the death: one of them removes the lock at a time, and
 * only if it still belongs to the dead owner, because by then a new, living owner may have it.
 *
 * @param {string} path
 * @param {string} deadHolder
 */
async function breakLock(path, deadHolder) {
  const marker = `${path}.breaking`;
  try {
    await writeFile(marker, "", { flag: "wx" });
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
    const age = await stat(marker).then(
      ({ mtimeMs }) => Date.now() - mtimeMs,
      () => 0,
    );
    if (age > breakingStaleMs) await rm(marker, { force: true });
    await delay(pollMs);
    return;
  }
  try {
    if ((await readIfThere(path)) === deadHolder) await rm(path, { force: true });
  } finally {
    await rm(marker, { force: true });
  }
}

/** @param {string} path */
async function readIfThere(path) {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
}

/** @param {string} holder */
function isHolderAlive(holder) {
  const pid = pidOf(holder);
  if (pid === undefined) return false;
  try {
    process.kill(pid, 0);
  } catch (error) {
    // EPERM: the process lives and belongs to another user.
    if (!hasCode(error, "EPERM")) return false;
  }
  // A later process may have the same number.
  return JSON.parse(holder).start === startOf(pid);
}

/**
 * @param {string} holder
 * @returns {number | undefined} undefined if this module did not write the content
 */
function pidOf(holder) {
  try {
    const { pid } = JSON.parse(holder);
    return Number.isInteger(pid) && pid > 0 ? pid : undefined;
  } catch {
    return undefined;
  }
}

/**
 * @param {number} pid
 * @returns {string | null} the start time of the process, which distinguishes it from a later process with the same
 * number; null where there is no /proc
 */
function startOf(pid) {
  try {
    // The second field is the program's name in brackets and may contain anything; the start time is the 20th after it.
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? null;
  } catch {
    return null;
  }
}

/**
 * @param {unknown} error
 * @param {string} code
 */
function hasCode(error, code) {
  return error instanceof Error && "code" in error && error.code === code;
}
