import type { Sandbox } from "@atoll/engine";
import type { CreateRequest } from "@atoll/protocol";
import type { Logger } from "pino";

const warmUpArgv = ["/bin/bash", "-c", "true"];
const warmUpTimeoutMs = 10_000;

/** What two sandboxes must have in common to be exchangeable before they are handed out. */
export type SandboxShape = Pick<CreateRequest, "template" | "driver" | "limits">;

export interface PooledShape {
  shape: SandboxShape;
  /** The number that is kept ready. */
  count: number;
}

export interface WarmPoolOptions {
  shapes: readonly PooledShape[];
  launch: (shape: SandboxShape, signal: AbortSignal) => Promise<Sandbox>;
  logger: Logger;
  /** The time before another attempt, when a sandbox could not be started. */
  retryMs?: number;
  /**
   * The time before a sandbox that was taken is replaced while others are ready, so that its client has the machine for
   * its first steps.
   */
  replaceDelayMs?: number;
}

interface PoolEntry {
  pooled: PooledShape;
  ready: Sandbox[];
  isFilling: boolean;
}

/**
 * Starts sandboxes before clients ask for them. Each is handed out once, to one client, and never comes back. One that
 * ended in the pool is discarded. When none is ready, the caller starts its own.
 */
export class WarmPool {
  readonly #options: WarmPoolOptions;
  readonly #entries = new Map<string, PoolEntry>();
  readonly #closed = new AbortController();
  #filling = new Set<Promise<void>>();
  #timers = new Set<NodeJS.Timeout>();

  constructor(options: WarmPoolOptions) {
    this.#options = options;
    for (const pooled of options.shapes) {
      this.#entries.set(shapeKey(pooled.shape), { pooled, ready: [], isFilling: false });
    }
  }

  /** Begins to fill the pool. */
  start(): void {
    for (const entry of this.#entries.values()) this.#fill(entry);
  }

  /** The number of ready sandboxes of all shapes. */
  get readyCount(): number {
    return [...this.#entries.values()].reduce((sum, { ready }) => sum + ready.length, 0);
  }

  take(shape: SandboxShape): Sandbox | undefined {
    const entry = this.#entries.get(shapeKey(shape));
    if (entry === undefined || this.#closed.signal.aborted) return undefined;
    try {
      for (let sandbox = entry.ready.shift(); sandbox !== undefined; sandbox = entry.ready.shift()) {
        if (sandbox.state === "running") return sandbox;
        this.#discard(sandbox);
      }
      return undefined;
    } finally {
      if (entry.ready.length === 0) this.#fill(entry);
      else this.#fillLater(entry, this.#options.replaceDelayMs ?? 250);
    }
  }

  /** Resolves when no pooled sandbox is left. */
  async close(): Promise<void> {
    this.#closed.abort();
    for (const timer of this.#timers) clearTimeout(timer);
    await Promise.all(this.#filling);
    const left = [...this.#entries.values()].flatMap(({ ready }) => ready.splice(0));
    await Promise.all(left.map((sandbox) => sandbox.kill({ kind: "server", message: "the pool was closed" })));
  }

  /** Starts missing sandboxes one after the other, so that requests are not slowed down by many starts at once. */
  #fill(entry: PoolEntry): void {
    if (entry.isFilling || this.#closed.signal.aborted) return;
    entry.isFilling = true;
    const filling = this.#launchMissing(entry).finally(() => {
      this.#filling.delete(filling);
    });
    this.#filling.add(filling);
  }

  #fillLater(entry: PoolEntry, ms: number): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      this.#fill(entry);
    }, ms);
    timer.unref();
    this.#timers.add(timer);
  }

  async #launchMissing(entry: PoolEntry): Promise<void> {
    const { shape, count } = entry.pooled;
    try {
      while (entry.ready.length < count && !this.#closed.signal.aborted) {
        const sandbox = await this.#options.launch(shape, this.#closed.signal);
        await warmUp(sandbox, this.#closed.signal);
        entry.ready.push(sandbox);
      }
    } catch (error) {
      if (this.#closed.signal.aborted) return;
      this.#options.logger.warn({ err: error, template: shape.template, driver: shape.driver }, "pool not filled");
      this.#fillLater(entry, this.#options.retryMs ?? 5_000);
    } finally {
      // This runs without an await after the last check of the count, so that a sandbox that is taken from now on is
      // replaced.
      entry.isFilling = false;
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

/**
 * Runs a program that does nothing, so that the first command of the client that gets the sandbox finds the programs
 * and libraries that all need in its caches. A sandbox that cannot run it is as good as any other.
 */
async function warmUp(sandbox: Sandbox, signal: AbortSignal): Promise<void> {
  try {
    const process = await sandbox.spawn({ argv: warmUpArgv, cwd: "/", timeoutMs: warmUpTimeoutMs }, { signal });
    process.discardOutput();
    await process.wait();
  } catch {
    // The sandbox has no such program, it has ended, or the pool was closed.
  }
}
