import { mkdir, open, rmdir } from "node:fs/promises";
import { dirname } from "node:path";
import { hasErrno } from "./file-failure.ts";

/** Makes the present names in the directory survive a loss of power. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, "r");
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

/**
 * Runs a change in a directory and makes it durable. The directory is opened before the change, because another process
 * may remove its name right after it, and the change must be durable all the same.
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

/** Makes a directory and its parents so that they survive a loss of power. */
export async function makeDirectory(path: string): Promise<void> {
  const first = await mkdir(path, { recursive: true, mode: 0o700 });
  if (first === undefined) return;
  for (let made = path; made.length >= first.length; made = dirname(made)) await syncDirectory(dirname(made));
}

/** Removes a directory and its parents as far as they are empty, up to but without `root`. */
export async function removeEmptyDirectories(path: string, root: string): Promise<void> {
  for (let empty = path; empty.length > root.length; empty = dirname(empty)) {
    try {
      await rmdir(empty);
    } catch (error) {
      // Another process has removed it already; its parents may still be empty.
      if (hasErrno(error, "ENOENT")) continue;
      if (hasErrno(error, "ENOTEMPTY", "EEXIST", "EBUSY")) return;
      throw error;
    }
  }
}
