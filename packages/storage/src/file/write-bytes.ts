import { open } from "node:fs/promises";
import type { ObjectVersion } from "../object-store.ts";
import { makeDirectory } from "./durable-directory.ts";
import { hasErrno } from "./file-failure.ts";
import type { ObjectDirectory } from "./object-directory.ts";

/** Each failed attempt means that another process removed an object below the same directories in between. */
const maxAttempts = 100;

/** Writes the bytes of a version durably; `fill` makes the file. */
export async function writeBytes(
  directory: ObjectDirectory,
  version: ObjectVersion,
  fill: (path: string) => Promise<void>,
): Promise<void> {
  const path = directory.bytes(version);
  for (let attempt = 1; ; attempt += 1) {
    try {
      await makeDirectory(directory.path);
      await fill(path);
      break;
    } catch (error) {
      // A process that removes the last object below a directory removes the directory, too.
      if (!hasErrno(error, "ENOENT") || attempt === maxAttempts) throw error;
    }
  }
  const file = await open(path, "r");
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
