import type { ObjectStore } from "@atoll/storage";
import { parseFilesKey } from "../snapshots/snapshot-keys.ts";
import { jitteredInterval } from "../support/jittered-interval.ts";
import type { Log } from "../telemetry/log.ts";
import { isPartKey } from "./checkpoint-keys.ts";

/** The interval is long, because a sweep lists a whole store. */
const usualIntervalMs = 6 * 60 * 60_000;

/** Reports whether a server wrote this key, whichever setting names the store. */
const isOurs = (key: string): boolean => isPartKey(key) || parseFilesKey(key) !== undefined;

export interface StoreSweeperOptions {
  /** The stores, each once. */
  stores: readonly ObjectStore[];
  log: Log;
  intervalMs?: number;
}

/**
 * Removes what crashed servers have left in the stores: unfinished uploads, bytes that belong to no object, marks of
 * removals.
 */
export class StoreSweeper {
  readonly #options: Required<StoreSweeperOptions>;
  readonly #closing = new AbortController();
  #plan: { stop: () => void } | undefined;
  #sweeping: Promise<void> = Promise.resolve();

  constructor(options: StoreSweeperOptions) {
    this.#options = { intervalMs: usualIntervalMs, ...options };
  }

  start(): void {
    this.#plan = jitteredInterval(this.#options.intervalMs, () => this.sweep());
  }

  /** Sweeps all stores once. The failure of one store is logged, and the others are swept. */
  sweep(): Promise<void> {
    this.#sweeping = this.#sweeping.then(() => this.#sweep());
    return this.#sweeping;
  }

  /** Resolves when no sweep runs any more. */
  async close(): Promise<void> {
    this.#plan?.stop();
    this.#closing.abort();
    await this.#sweeping;
  }

  async #sweep(): Promise<void> {
    const { stores, log } = this.#options;
    const { signal } = this.#closing;
    for (const store of stores) {
      if (signal.aborted) return;
      try {
        const swept = await store.sweep({ signal, isOurs });
        if (swept > 0) log.info({ place: store.place, swept }, "store swept");
      } catch (error) {
        if (!signal.aborted) log.warn({ err: error, place: store.place }, "store not swept");
      }
    }
  }
}
