import { uptimeMs, type Engine } from "@atoll/engine";
import { isSandboxError, type SandboxId } from "@atoll/protocol";
import type { Logger } from "pino";
import type { SandboxHandle } from "./sandbox-handle.ts";

export interface RunDeadlinesOptions {
  engine: Pick<Engine, "get">;
  log: Logger;
  /** Of the clock by which launchers go. */
  nowMs?: () => number;
}

/**
 * Lets a sandbox run for as long as its lease is surely this server's. Its launcher stops it when the time is up, also
 * when this server is dead by then.
 */
export class RunDeadlines {
  readonly #options: RunDeadlinesOptions;

  constructor(options: RunDeadlinesOptions) {
    this.#options = options;
  }

  /**
   * Resolves when it is in force, and the sandbox answers if it runs. One that runs and whose launcher does not go by
   * it must not be kept.
   */
  async extend(handle: Pick<SandboxHandle, "id" | "remainingMs">): Promise<void> {
    // In this order: for how long this process stands still in between, the sandbox has less time, not more.
    const nowMs = this.#nowMs;
    const untilMs = nowMs + handle.remainingMs;
    await this.#allowUntil(handle.id, untilMs);
  }

  /** The same for one that has a time already, which stays in force if this one cannot be set. */
  async extendFurther(handle: Pick<SandboxHandle, "id" | "remainingMs">): Promise<void> {
    await this.extend(handle).catch((error: unknown) => this.#log(handle.id, error));
  }

  /** It stands still from now on. What cannot be told is stopped by its launcher when its time is up. */
  async stop(id: SandboxId): Promise<void> {
    await this.#allowUntil(id, this.#nowMs).catch((error: unknown) => this.#log(id, error));
  }

  get #nowMs(): number {
    return (this.#options.nowMs ?? uptimeMs)();
  }

  async #allowUntil(id: SandboxId, atMs: number): Promise<void> {
    try {
      await this.#options.engine.get(id).allowUntil(atMs);
    } catch (error) {
      // It is gone, or not here yet, or nothing of it runs any more.
      if (!isSandboxError(error, "not_found") && !isSandboxError(error, "sandbox_ended")) throw error;
    }
  }

  #log(id: SandboxId, error: unknown): void {
    this.#options.log.error({ err: error, sandboxId: id }, "time to run not set");
  }
}
