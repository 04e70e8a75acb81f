import { mkdir, rm, stat, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isSandboxError } from "@atoll/protocol";
import type { RunnerSandbox, SnapshotStore } from "../client/sandbox-client.ts";

export interface CachedSnapshot {
  name: string;
  bytes: number;
  lastUsedAtMs: number;
}

/** Names that the runner gives, and nothing that a person would. */
const ourName = /^(?:env|task)-[0-9a-f]{40}$/;

/** Snapshots under the keys of what they were made from. When each was last used is known on this machine only. */
export class SnapshotCache {
  readonly #store: SnapshotStore;
  readonly #directory: string;

  constructor(store: SnapshotStore, cacheDirectory: string) {
    this.#store = store;
    this.#directory = join(cacheDirectory, "snapshots");
  }

  async has(name: string, signal: AbortSignal): Promise<boolean> {
    if (!(await this.#store.has(name, signal))) return false;
    await this.#touch(name);
    return true;
  }

  /** Saves a sandbox under the name. One that another runner has saved in the same moment is as good. */
  async save(sandbox: RunnerSandbox, name: string, signal: AbortSignal): Promise<void> {
    try {
      await sandbox.snapshot?.(name, signal);
    } catch (error) {
      if (!isSandboxError(error, "already_exists")) throw error;
    }
    await this.#touch(name);
  }

  /** Every snapshot of the runner, the one that was used last first. */
  async list(signal: AbortSignal): Promise<CachedSnapshot[]> {
    const ours = (await this.#store.list(signal)).filter(({ name }) => ourName.test(name));
    const listed = ours.map(async ({ name, bytes, createdAtMs }) => {
      const used = await stat(join(this.#directory, name)).catch(() => undefined);
      return { name, bytes, lastUsedAtMs: Math.max(used?.mtimeMs ?? 0, createdAtMs) };
    });
    return (await Promise.all(listed)).toSorted((a, b) => b.lastUsedAtMs - a.lastUsedAtMs);
  }

  /** Removes the least recently used snapshots until at most `maxBytes` are left, and returns what was removed. */
  async prune(maxBytes: number, signal: AbortSignal): Promise<CachedSnapshot[]> {
    let bytes = 0;
    const removed: CachedSnapshot[] = [];
    for (const snapshot of await this.list(signal)) {
      bytes += snapshot.bytes;
      if (bytes <= maxBytes) continue;
      await this.remove(snapshot.name, signal);
      removed.push(snapshot);
    }
    return removed;
  }

  async remove(name: string, signal: AbortSignal): Promise<void> {
    await this.#store.remove(name, signal);
    await rm(join(this.#directory, name), { force: true });
  }

  async #touch(name: string): Promise<void> {
    const path = join(this.#directory, name);
    await mkdir(this.#directory, { recursive: true });
    await writeFile(path, "", { flag: "a" });
    const now = new Date();
    await utimes(path, now, now);
  }
}
