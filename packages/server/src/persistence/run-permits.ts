import { uptimeMs, type Engine } from "@atoll/engine";
import { isSandboxError, type SandboxId } from "@atoll/protocol";
import type { Logger } from "pino";
import type { SandboxHandle } from "./sandbox-handle.ts";

/** Lets a sandbox run for as long as its lease is surely this server's. Its launcher stops it when the time is up, also when this server is dead by then. */
export class RunPermits {
  readonly #engine: Engine;
  readonly #log: Logger;

  constructor({ engine, log }: { engine: Engine; log: Logger }) {
    this.#engine = engine;
    this.#log = log;
  }

  /** Resolves when it is in force, and the sandbox answers if it runs. */
  async extend({ id, remainingMs }: Pick<SandboxHandle, "id" | "remainingMs">): Promise<void> {
    await this.#allowUntil(id, uptimeMs() + remainingMs);
  }

  /** It stands still from now on. */
  async stop(id: SandboxId): Promise<void> {
    await this.#allowUntil(id, uptimeMs());
  }

  async #allowUntil(id: SandboxId, atMs: number): Promise<void> {
    try {
      await this.#engine.get(id).allowUntil(atMs);
    } catch (error) {
      // It is gone, or not here yet.
      if (!isSandboxError(error, "not_found")) this.#log.error({ err: error, sandboxId: id }, "time to run not set");
    }
  }
}
