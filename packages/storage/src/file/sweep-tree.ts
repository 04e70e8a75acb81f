import type { CallOptions, ObjectVersion } from "../object-store.ts";
import type { ObjectTree } from "./object-tree.ts";
import { writerOf } from "./version.ts";
import type { Writer } from "./writer.ts";
import { findLivingWriters } from "./writers.ts";

export interface SweepOptions extends CallOptions {
  writersDir: string;
  self: Writer;
}

/** Removes bytes that are not an object and that no living writer is about to make one. */
export async function sweepTree(tree: ObjectTree, options: SweepOptions): Promise<number> {
  let removed = 0;
  for await (const { directory } of tree.walk("", { prune: true })) {
    options.signal?.throwIfAborted();
    const current = await directory.current();
    const suspects = (await directory.versions()).filter((version) => version !== current && !isOwnWork(version));
    if (suspects.length > 0) {
      // The writers are read after the names, so the names contain no version of a writer that started in between.
      const living = await findLivingWriters(options.writersDir);
      const left = suspects.filter((version) => isOwn(version) || !living.has(writerOf(version)));
      for (const version of left) if (await directory.sweep(version)) removed += 1;
    }
    await directory.removeIfEmpty();
  }
  await findLivingWriters(options.writersDir);
  return removed;

  function isOwn(version: ObjectVersion): boolean {
    return writerOf(version) === options.self.id;
  }

  function isOwnWork(version: ObjectVersion): boolean {
    return isOwn(version) && options.self.isAtWork(version);
  }
}
