import { uptimeMs, type Engine } from "@atoll/engine";
import { isSandboxError, type SandboxId } from "@atoll/protocol";
import type { Logger } from "pino";
import type { SandboxHandle } from "./sandbox-handle.ts";

export interface RunDeadlinesOptions {
  engine: Pick<Engine, "get">;
  log: Logger;
  /** Returns the time by the clock that launchers use. */
  nowMs?: () => number;
}

/**
 * Lets a sandbox run for as long as this server surely has its lease. Its launcher stops it when the time is up, also
 * if this server has crashed by then.
 */
export class RunDeadlines {
  readonly #options: RunDeadlinesOptions;

  constructor(options: RunDeadlinesOptions) {
    this.#options = options;
  }

  /**
   * Extends the time. When it resolves, the new time is in force and a running sandbox answers. A running sandbox whose
   * launcher does not apply it must not be kept.
   */
  async extend(handle: Pick<SandboxHandle, "id" | "remainingMs">): Promise<void> {
    // The time is read in this order: if this process is suspended in between, the sandbox gets less time, not more.
    const nowMs = this.#nowMs;
    const untilMs = nowMs + handle.remainingMs;
    await this.#allowUntil(handle.id, untilMs);
  }

  /** Extends the time of a sandbox that has one, which stays in force if the new one cannot be set. */
  async extendFurther(handle: Pick<SandboxHandle, "id" | "remainingMs">): Promise<void> {
    await this.extend(handle).catch((error: unknown) => this.#log(handle.id, error));
  }

  /** Stops the sandbox now. If its launcher cannot be reached, it stops the sandbox when the time is up. */
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
      // The sandbox is gone, or not here yet, or nothing of it runs any more.
      if (!isSandboxError(error, "not_found") && !isSandboxError(error, "sandbox_ended")) throw error;
    }
  }

  #log(id: SandboxId, error: unknown): void {
    this.#options.log.error({ err: error, sandboxId: id }, "time to run not set");
  }
}
