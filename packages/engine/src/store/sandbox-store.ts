import { mkdir, readdir, readFile, rm } from "node:fs/promises";
import { hasErrno, writeDurably } from "@atoll/host";
import { SandboxId, SandboxRecord, type SandboxId as Id } from "@atoll/protocol";
import type { DataLayout } from "./layout.ts";
import { removeTree } from "./remove-tree.ts";

/** A sandbox directory whose record cannot be used. Nothing in it is touched, because it may have a user's files. */
export interface UnreadableSandbox {
  dir: string;
  because: string;
}

/** The stored records, one per sandbox. Only the holder of the data directory's lock writes here. */
export class SandboxStore {
  #layout: DataLayout;

  constructor(layout: DataLayout) {
    this.#layout = layout;
  }

  async save(record: SandboxRecord): Promise<void> {
    const { dir, recordFile } = this.#layout.sandbox(record.id);
    await mkdir(dir, { recursive: true, mode: 0o700 });
    await writeDurably(recordFile, `${JSON.stringify(record, undefined, 2)}\n`);
  }

  /**
   * Removes the sandbox's directory with everything in it, the record first, so that what is left after a crash has no
   * owner. Idempotent.
   */
  async remove(id: Id): Promise<void> {
    const { dir, recordFile } = this.#layout.sandbox(id);
    await rm(recordFile, { force: true });
    await removeTree(dir);
  }

  async load(): Promise<{ records: SandboxRecord[]; unreadable: UnreadableSandbox[]; ownerless: Id[] }> {
    const records: SandboxRecord[] = [];
    const unreadable: UnreadableSandbox[] = [];
    const ownerless: Id[] = [];
    await mkdir(this.#layout.sandboxesDir, { recursive: true, mode: 0o700 });
    for (const name of await readdir(this.#layout.sandboxesDir)) {
      const id = SandboxId.safeParse(name);
      if (!id.success) {
        unreadable.push({ dir: `${this.#layout.sandboxesDir}/${name}`, because: "its name is no sandbox id" });
        continue;
      }
      const layout = this.#layout.sandbox(id.data);
      try {
        records.push(parseRecord(await readFile(layout.recordFile, "utf8"), id.data));
      } catch (error) {
        if (hasErrno(error, "ENOENT")) ownerless.push(id.data);
        else unreadable.push({ dir: layout.dir, because: error instanceof Error ? error.message : String(error) });
      }
    }
    return { records, unreadable, ownerless };
  }
}

function parseRecord(text: string, id: Id): SandboxRecord {
  const record = SandboxRecord.parse(JSON.parse(text));
  if (record.id !== id) throw new Error(`its record is that of sandbox ${record.id}`);
  return record;
}
