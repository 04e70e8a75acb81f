import { SandboxError, type SandboxId } from "@atoll/protocol";

interface Entry {
  controller: AbortController;
  users: number;
}

/**
 * Ends transfers of a sandbox as soon as it is to be killed: a kill runs in the sandbox's queue, and must not wait for
 * hours of transfer.
 */
export class KillSignals {
  readonly #entries = new Map<SandboxId, Entry>();

  /** Runs a kill. Transfers of the sandbox end, and none begins before the kill is done. */
  whileKilling<T>(id: SandboxId, kill: () => Promise<T>): Promise<T> {
    return this.#use(id, (controller) => {
      controller.abort(beingKilled(id));
      return kill();
    });
  }

  /** Runs a transfer. Rejects with `sandbox_ended` when a kill ended it. */
  unlessKilled<T>(id: SandboxId, transfer: (killed: AbortSignal) => Promise<T>): Promise<T> {
    return this.#use(id, async ({ signal }) => {
      try {
        signal.throwIfAborted();
        return await transfer(signal);
      } catch (error) {
        signal.throwIfAborted();
        throw error;
      }
    });
  }

  async #use<T>(id: SandboxId, work: (controller: AbortController) => Promise<T>): Promise<T> {
    const entry = this.#entries.get(id) ?? { controller: new AbortController(), users: 0 };
    this.#entries.set(id, entry);
    entry.users += 1;
    try {
      return await work(entry.controller);
    } finally {
      entry.users -= 1;
      if (entry.users === 0) this.#entries.delete(id);
    }
  }
}

function beingKilled(id: SandboxId): SandboxError {
  return new SandboxError("sandbox_ended", `Cannot go on with sandbox ${id}: it is being killed`, {
    details: { sandboxId: id },
  });
}
