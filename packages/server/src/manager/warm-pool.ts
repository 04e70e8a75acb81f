import type { Sandbox } from "@atoll/engine";
import type { CreateRequest } from "@atoll/protocol";
import type { Logger } from "pino";
import { warmUp } from "./warm-up.ts";

/** What two sandboxes must have in common to stand for each other before anybody has them. */
export type SandboxShape = Pick<CreateRequest, "template" | "driver" | "limits">;

export interface PooledShape {
  shape: SandboxShape;
  /** So many are kept ready. */
  count: number;
}

export interface WarmPoolOptions {
  shapes: readonly PooledShape[];
  launch: (shape: SandboxShape, signal: AbortSignal) => Promise<Sandbox>;
  logger: Logger;
  /** Before another attempt, when a sandbox could not be started. */
  retryMs?: number;
  /**
   * Before one that was taken is replaced, while others are ready: whoever took it has the machine for its first steps.
   */
  restMs?: number;
}

interface Shelf {
  pooled: PooledShape;
  ready: Sandbox[];
  isFilling: boolean;
}

/**
 * Sandboxes that were started before anybody asked. Each is handed out once, to one client, and never comes back. One
 * that died on the shelf is thrown away. An empty shelf is no error: the caller starts its own.
 */
export class WarmPool {
  readonly #options: WarmPoolOptions;
  readonly #shelves = new Map<string, Shelf>();
  readonly #closed = new AbortController();
  #filling = new Set<Promise<void>>();
  #timers = new Set<NodeJS.Timeout>();

  constructor(options: WarmPoolOptions) {
    this.#options = options;
    for (const pooled of options.shapes) {
      this.#shelves.set(shapeKey(pooled.shape), { pooled, ready: [], isFilling: false });
    }
  }

  /** Begins to fill. */
  start(): void {
    for (const shelf of this.#shelves.values()) this.#fill(shelf);
  }

  /** How many are ready, over all shapes. */
  get readyCount(): number {
    return [...this.#shelves.values()].reduce((sum, { ready }) => sum + ready.length, 0);
  }

  take(shape: SandboxShape): Sandbox | undefined {
    const shelf = this.#shelves.get(shapeKey(shape));
    if (shelf === undefined || this.#closed.signal.aborted) return undefined;
    try {
      for (let sandbox = shelf.ready.shift(); sandbox !== undefined; sandbox = shelf.ready.shift()) {
        if (sandbox.state === "running") return sandbox;
        this.#discard(sandbox);
      }
      return undefined;
    } finally {
      if (shelf.ready.length === 0) this.#fill(shelf);
      else this.#later(shelf, this.#options.restMs ?? 250);
    }
  }

  /** Resolves when nothing of it is left. */
  async close(): Promise<void> {
    this.#closed.abort();
    for (const timer of this.#timers) clearTimeout(timer);
    await Promise.all(this.#filling);
    const left = [...this.#shelves.values()].flatMap(({ ready }) => ready.splice(0));
    await Promise.all(left.map((sandbox) => sandbox.kill({ kind: "server", message: "the pool was closed" })));
  }

  /** One after the other, so that clients who ask meanwhile have the machine. */
  #fill(shelf: Shelf): void {
    if (shelf.isFilling || this.#closed.signal.aborted) return;
    shelf.isFilling = true;
    const filling = this.#launchMissing(shelf).finally(() => {
      this.#filling.delete(filling);
    });
    this.#filling.add(filling);
  }

  #later(shelf: Shelf, ms: number): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      this.#fill(shelf);
    }, ms);
    timer.unref();
    this.#timers.add(timer);
  }

  async #launchMissing(shelf: Shelf): Promise<void> {
    const { shape, count } = shelf.pooled;
    try {
      while (shelf.ready.length < count && !this.#closed.signal.aborted) {
        const sandbox = await this.#options.launch(shape, this.#closed.signal);
        await warmUp(sandbox, this.#closed.signal);
        shelf.ready.push(sandbox);
      }
    } catch (error) {
      if (this.#closed.signal.aborted) return;
      this.#options.logger.warn({ err: error, template: shape.template, driver: shape.driver }, "pool not filled");
      this.#later(shelf, this.#options.retryMs ?? 5_000);
    } finally {
      // In the same breath as the last look at the shelf: one that is taken from now on is replaced.
      shelf.isFilling = false;
    }
  }

  #discard(sandbox: Sandbox): void {
    sandbox.kill({ kind: "server", message: "it ended in the pool" }).catch((error: unknown) => {
      this.#options.logger.warn({ err: error, sandboxId: sandbox.id }, "pooled sandbox not removed");
    });
  }
}

function shapeKey({ template, driver, limits }: SandboxShape): string {
  const sorted = Object.entries(limits).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify([template, driver, sorted]);
}
