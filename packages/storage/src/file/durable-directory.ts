import { mkdir, open, rmdir } from "node:fs/promises";
import { dirname } from "node:path";
import { hasErrno } from "./file-failure.ts";

/** Everything that was named in this directory so far is still named there after a loss of power. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, "r");
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

/**
 * Runs a change in a directory and makes it last. The directory is held from before the change on: after it somebody
 * else may have removed it, and the change must last all the same.
 */
export async function changeDirectory(path: string, change: () => Promise<void>): Promise<void> {
  const directory = await open(path, "r");
  try {
    await change();
    await directory.sync();
  } finally {
    await directory.close();
  }
}

/** Makes a directory and what is above it, so that they are still there after a loss of power. */
export async function makeDirectory(path: string): Promise<void> {
  const first = await mkdir(path, { recursive: true, mode: 0o700 });
  if (first === undefined) return;
  for (let made = path; made.length >= first.length; made = dirname(made)) await syncDirectory(dirname(made));
}

/** Removes a directory and those above it as far as they are empty, up to but without `root`. */
export async function removeEmptyDirectories(path: string, root: string): Promise<void> {
  for (let empty = path; empty.length > root.length; empty = dirname(empty)) {
    try {
      await rmdir(empty);
    } catch (error) {
      // Somebody else was faster: what is above may still be empty.
      if (hasErrno(error, "ENOENT")) continue;
      if (hasErrno(error, "ENOTEMPTY", "EEXIST", "EBUSY")) return;
      throw error;
    }
  }
}
