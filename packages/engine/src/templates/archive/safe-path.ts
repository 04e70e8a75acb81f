import { MalformedArchive } from "./tar-header.ts";

/** The limit keeps absolute paths short enough for the kernel, so that everything can be removed. */
const longestPath = 2048;
const longestName = 255;

/**
 * Returns a relative path without "." and "..": joined to the root it stays below it. Returns "" for the root itself.
 */
export function safePath(name: string): string {
  const parts = name.split("/").filter((part) => part !== "" && part !== ".");
  const isUnsafe = name.startsWith("/") || name.includes("\0") || parts.includes("..");
  if (isUnsafe) throw new MalformedArchive(`the name ${JSON.stringify(name)} leads out of it`);
  const path = parts.join("/");
  if (Buffer.byteLength(path) > longestPath || parts.some((part) => Buffer.byteLength(part) > longestName)) {
    throw new MalformedArchive(`the name ${JSON.stringify(`${name.slice(0, 60)}…`)} is too long`);
  }
  return path;
}
