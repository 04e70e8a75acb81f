import { SandboxError, type SandboxId } from "@atoll/protocol";

interface Entry {
  controller: AbortController;
  users: number;
}

/**
 * Ends what moves a sandbox as soon as that is to be killed: a kill waits for its turn, and must not wait for hours of
 * transfer.
 */
export class KillSignals {
  readonly #entries = new Map<SandboxId, Entry>();

  /** Whatever moves it ends, and what would begin to before the kill is done does not. */
  whileKilling<T>(id: SandboxId, kill: () => Promise<T>): Promise<T> {
    return this.#use(id, (controller) => {
      controller.abort(beingKilled(id));
      return kill();
    });
  }

  /** Rejects with `sandbox_ended` when that was ended by a kill. */
  unlessKilled<T>(id: SandboxId, move: (killed: AbortSignal) => Promise<T>): Promise<T> {
    return this.#use(id, async ({ signal }) => {
      try {
        signal.throwIfAborted();
        return await move(signal);
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
