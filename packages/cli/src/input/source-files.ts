import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "@atoll/host";
import { UsageError } from "./usage-error.ts";

const isSource = (path: string): boolean => /\.(?:[cm]?[jt]sx?|pyi?)$/.test(path);

/** How much is in memory at a time. A larger file is refused, since no part of it would be scanned. */
const maxBytes = 8 * 1024 * 1024;

/**
 * Reads the sources among these files and in these folders, by path, in batches. Links in folders are not followed, and
 * folders are left out that are hidden or called `node_modules`.
 */
export async function* sourceFiles(paths: readonly string[]): AsyncGenerator<Map<string, string>, void, undefined> {
  let batch = new Map<string, string>();
  let bytes = 0;
  for (const named of paths) {
    for await (const { path, size } of walk(named)) {
      if (size > maxBytes) {
        const fix = "Read it yourself, or name the other files alone.";
        throw new UsageError(`Cannot scan ${path}: it is larger than ${maxBytes / 1024 / 1024} MiB`, fix);
      }
      if (bytes + size > maxBytes) {
        yield batch;
        batch = new Map();
        bytes = 0;
      }
      batch.set(path, await readFile(path, "utf8"));
      bytes += size;
    }
  }
  if (batch.size > 0) yield batch;
}

async function* walk(path: string): AsyncGenerator<{ path: string; size: number }, void, undefined> {
  const found = await stat(path).catch((error: unknown) => {
    throw new UsageError(`Cannot scan ${path}: ${messageOf(error)}`, "Name files and folders that can be read.");
  });
  if (found.isDirectory()) yield* below(path);
  else if (found.isFile() && isSource(path)) yield { path, size: found.size };
  else throw new UsageError(`Cannot scan ${path}`, "Only JavaScript, TypeScript and Python are scanned.");
}

async function* below(folder: string): AsyncGenerator<{ path: string; size: number }, void, undefined> {
  const entries = await readdir(folder, { withFileTypes: true });
  for (const entry of entries.toSorted((a, b) => a.name.localeCompare(b.name))) {
    const path = join(folder, entry.name);
    if (entry.isDirectory() && entry.name !== "node_modules" && !entry.name.startsWith(".")) yield* below(path);
    if (entry.isFile() && isSource(entry.name)) yield* walk(path);
  }
}
