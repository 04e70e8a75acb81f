import type { ObjectStore } from "@atoll/storage";
import { parseFilesKey } from "../snapshots/snapshot-keys.ts";
import { jitteredInterval } from "../support/jittered-interval.ts";
import type { Log } from "../telemetry/log.ts";
import { isPartKey } from "./checkpoint-keys.ts";

/** A sweep lists a whole store. */
const usualIntervalMs = 6 * 60 * 60_000;

/** All that servers upload, whichever settings name the store. */
const isOurs = (key: string): boolean => isPartKey(key) || parseFilesKey(key) !== undefined;

export interface StoreSweeperOptions {
  /** Each once. */
  stores: readonly ObjectStore[];
  log: Log;
  intervalMs?: number;
}

/**
 * Clears all stores of what servers that died have left there: uploads that nobody ends, bytes that are no object,
 * marks of removals.
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

  /** Once. A store that cannot be swept does not keep the others from it; the log has it. */
  sweep(): Promise<void> {
    this.#sweeping = this.#sweeping.then(() => this.#sweep());
    return this.#sweeping;
  }

  /** Resolves when nothing is under way any more. */
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
