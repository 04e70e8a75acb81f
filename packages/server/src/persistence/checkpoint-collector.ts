import { isSandboxError, type SandboxId } from "@atoll/protocol";
import { chooseExpired, collectGarbage, type ObjectStore, type RetentionPolicy } from "@atoll/storage";
import { jitteredInterval } from "../support/jittered-interval.ts";
import { Turns } from "../support/turns.ts";
import type { Log } from "../telemetry/log.ts";
import {
  checkpointsPrefix,
  condemnedKey,
  isPartKey,
  layersPrefix,
  manifestKey,
  parseManifestKey,
  retiredPrefix,
  sandboxPrefix,
} from "./checkpoint-keys.ts";
import { parseStored, readStored, type StoredCheckpoint } from "./checkpoint-manifest.ts";
import { needsOf, retireStored } from "./checkpoint-retirement.ts";
import { publishedNumbers } from "./checkpoint-reuse.ts";
import { collectionGraceMs } from "./checkpoint-timing.ts";

/** The interval is long, because each collection lists the whole store and reads every manifest in it. */
const usualIntervalMs = 6 * 60 * 60_000;

/** What the metadata say about a sandbox. */
export interface RetentionStatus {
  isKilled: boolean;
  /** The checkpoints that are kept whatever the policy says. */
  needed: readonly number[];
}

export interface CheckpointCollectorOptions {
  store: ObjectStore;
  policy: RetentionPolicy;
  /**
   * Returns undefined if there are no metadata; then only the policy decides. If it rejects, no checkpoint of this
   * sandbox is retired this time.
   */
  statusOf: (id: SandboxId, options: { signal: AbortSignal }) => Promise<RetentionStatus | undefined>;
  /** Removes the rest of killed sandboxes, after their checkpoints. */
  removeKilled?: (options: { nowMs: number; signal: AbortSignal }) => Promise<readonly SandboxId[]>;
  log: Log;
  intervalMs?: number;
  graceMs?: number;
  nowMs?: () => number;
}

export interface Collected {
  /** The keys of retired manifests. */
  retired: string[];
  /** The keys of removed parts. */
  removed: string[];
}

/**
 * Retires checkpoints that the policy does not keep, and removes parts that no checkpoint needs. It may run on any
 * number of servers at once and be interrupted at any moment.
 */
export class CheckpointCollector {
  readonly #options: Required<CheckpointCollectorOptions>;
  readonly #turns = new Turns();
  readonly #closing = new AbortController();
  #plan: { stop: () => void } | undefined;

  constructor(options: CheckpointCollectorOptions) {
    this.#options = {
      intervalMs: usualIntervalMs,
      graceMs: collectionGraceMs,
      nowMs: Date.now,
      removeKilled: async () => [],
      ...options,
    };
  }

  /** Starts to collect at intervals. */
  start(): void {
    this.#plan = jitteredInterval(this.#options.intervalMs, () =>
      this.#collectUnlessRecent().catch((error: unknown) => this.#log(error, "checkpoints could not be collected")),
    );
  }

  /** Retires older checkpoints of a sandbox after one was published. It runs in the background. */
  published(id: SandboxId): void {
    this.#turns
      .take(async () => this.#retireExpired(id, await publishedNumbers(this.#options.store, id, this.#closing.signal)))
      .catch((error: unknown) => this.#log(error, "expired checkpoints could not be removed", { sandboxId: id }));
  }

  /** Runs one complete collection. */
  collect(): Promise<Collected> {
    return this.#turns.take(async () => {
      const { log, removeKilled, nowMs } = this.#options;
      const { signal } = this.#closing;
      const retired: string[] = [];
      for (const [id, numbers] of await this.#published()) retired.push(...(await this.#retireExpired(id, numbers)));
      const removed = await this.#removeGarbage();
      const killed = await removeKilled({ nowMs: nowMs(), signal });
      const counts = { retired: retired.length, removed: removed.length, killed: killed.length };
      log.info(counts, "checkpoints collected");
      return { retired, removed };
    });
  }

  /** Resolves when no collection runs any more. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.#plan?.stop();
    await this.#turns.take(async () => undefined);
  }

  /**
   * Skips the collection if there was a recent one. Each collection writes what it saw, so a recent object means that
   * another server has just collected.
   */
  async #collectUnlessRecent(): Promise<void> {
    const { store, intervalMs, nowMs } = this.#options;
    const last = await store.stat(condemnedKey, { signal: this.#closing.signal });
    if (last === undefined || Math.abs(nowMs() - last.modifiedAtMs) >= intervalMs / 2) await this.collect();
  }

  /** Returns the numbers of the manifests of each sandbox, in order. */
  async #published(): Promise<Map<SandboxId, number[]>> {
    const bySandbox = new Map<SandboxId, number[]>();
    for await (const { key } of this.#options.store.list(checkpointsPrefix, { signal: this.#closing.signal })) {
      const named = parseManifestKey(key);
      if (named === undefined) continue;
      bySandbox.set(named.sandboxId, [...(bySandbox.get(named.sandboxId) ?? []), named.n]);
    }
    for (const numbers of bySandbox.values()) numbers.sort((one, two) => one - two);
    return bySandbox;
  }

  async #retireExpired(id: SandboxId, numbers: readonly number[]): Promise<string[]> {
    const { store, nowMs } = this.#options;
    const { signal } = this.#closing;
    const retired: string[] = [];
    for (const n of await this.#expired(id, numbers)) {
      const mayGo = (): Promise<boolean> => this.#mayGo(id, n);
      const retirement = await retireStored(store, { sandboxId: id, n }, { signal, nowMs: nowMs(), mayGo });
      if (retirement === "gone") retired.push(manifestKey(id, n));
    }
    return retired;
  }

  /**
   * Reports whether the checkpoint may still be removed: since its status was read, a rollback to it may have begun.
   */
  async #mayGo(id: SandboxId, n: number): Promise<boolean> {
    const status = await this.#status(id);
    return status !== "unknown" && (status?.isKilled === true || status?.needed.includes(n) !== true);
  }

  async #status(id: SandboxId): Promise<RetentionStatus | undefined | "unknown"> {
    try {
      return await this.#options.statusOf(id, { signal: this.#closing.signal });
    } catch (error) {
      this.#log(error, "checkpoints stay: metadata cannot be read", { sandboxId: id });
      return "unknown";
    }
  }

  async #expired(id: SandboxId, numbers: readonly number[]): Promise<readonly number[]> {
    const { policy, nowMs } = this.#options;
    const status = await this.#status(id);
    if (status === "unknown") return [];
    if (status?.isKilled === true) return numbers;
    if (numbers.length <= policy.keepLast) return [];
    const all = await this.#readAll(id, numbers);
    if (all === undefined) return [];
    let lastMs = Number.NEGATIVE_INFINITY;
    const dated = all.map((stored) => {
      // The clocks of servers differ, but numbers do not: a later checkpoint counts as younger.
      lastMs = Math.max(lastMs + 1, stored.manifest.createdAtMs);
      const { n } = stored;
      const isPinned = status?.needed.includes(n) === true;
      return { n, key: manifestKey(id, n), needs: needsOf(stored), line: id, createdAtMs: lastMs, isPinned };
    });
    return chooseExpired(dated, policy, nowMs()).map(({ n }) => n);
  }

  /** Returns undefined when one of them cannot be read: then no checkpoint of this sandbox is retired. */
  async #readAll(id: SandboxId, numbers: readonly number[]): Promise<StoredCheckpoint[] | undefined> {
    const all: StoredCheckpoint[] = [];
    for (const n of numbers) {
      try {
        const stored = await readStored(this.#options.store, { sandboxId: id, n }, this.#closing.signal);
        if (stored !== undefined) all.push(stored);
      } catch (error) {
        if (!isSandboxError(error, "unrestorable")) throw error;
        this.#log(error, "checkpoints stay: one of them cannot be read", { sandboxId: id, checkpoint: n });
        return undefined;
      }
    }
    return all;
  }

  #removeGarbage(): Promise<string[]> {
    const { store, nowMs, graceMs } = this.#options;
    return collectGarbage(store, {
      signal: this.#closing.signal,
      prefixes: [checkpointsPrefix, layersPrefix],
      isManifest: (key) => parseManifestKey(key) !== undefined,
      isPart: isPartKey,
      readNeeds: (key, data) => {
        const of = parseManifestKey(key);
        if (of === undefined) throw new Error(`${key} is not that of a manifest`);
        try {
          return needsOf(parseStored(of, data));
        } catch (error) {
          if (!isSandboxError(error, "unrestorable")) throw error;
          this.#log(error, "parts stay: a manifest cannot be read", { sandboxId: of.sandboxId, checkpoint: of.n });
          // The memory of an unreadable checkpoint is its own, but its layers may be those of any sandbox that it is a
          // copy of.
          return { below: [sandboxPrefix(of.sandboxId), layersPrefix] };
        }
      },
      retiredPrefix,
      condemnedKey,
      nowMs: nowMs(),
      graceMs,
    });
  }

  #log(error: unknown, what: string, facts: Record<string, unknown> = {}): void {
    if (!this.#closing.signal.aborted) this.#options.log.warn({ ...facts, err: error }, what);
  }
}
