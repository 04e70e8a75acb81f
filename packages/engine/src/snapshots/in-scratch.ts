import { randomUUID } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { DataLayout } from "../store/layout.ts";
import { removeTree } from "../store/remove-tree.ts";

/** Runs `work` in a directory that is removed afterwards; after a crash, at the next start. */
export async function inScratch<T>({ copiesDir }: DataLayout, work: (scratch: string) => Promise<T>): Promise<T> {
  const scratch = join(copiesDir, randomUUID());
  try {
    await mkdir(scratch, { recursive: true, mode: 0o700 });
    return await work(scratch);
  } finally {
    await removeTree(scratch);
  }
}
