import type { SandboxId } from "@atoll/protocol";

interface PendingAcquisition {
  done: Promise<void>;
  interested: number;
  nobodyWaits: AbortController;
}

/**
 * Sandboxes on their way here: however many requests wait for one, it is fetched once, and no longer when all of them
 * have left.
 */
export class PendingAcquisitions {
  readonly #take: (id: SandboxId, signal: AbortSignal) => Promise<void>;
  readonly #pendingAcquisitions = new Map<SandboxId, PendingAcquisition>();

  constructor(take: (id: SandboxId, signal: AbortSignal) => Promise<void>) {
    this.#take = take;
  }

  has(id: SandboxId): boolean {
    return this.#pendingAcquisitions.has(id);
  }

  async await(id: SandboxId, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const acquisition = this.#pendingAcquisitions.get(id) ?? this.#begin(id);
    acquisition.interested += 1;
    try {
      await orAborted(acquisition.done, signal);
    } finally {
      acquisition.interested -= 1;
      if (acquisition.interested === 0) this.#giveUp(id, acquisition);
    }
  }

  #begin(id: SandboxId): PendingAcquisition {
    const nobodyWaits = new AbortController();
    const done = this.#take(id, nobodyWaits.signal);
    const acquisition = { done, interested: 0, nobodyWaits };
    this.#pendingAcquisitions.set(id, acquisition);
    const end = (): void => this.#forget(id, acquisition);
    done.then(end, end);
    return acquisition;
  }

  /** Whoever asks from now on begins anew. */
  #giveUp(id: SandboxId, acquisition: PendingAcquisition): void {
    acquisition.nobodyWaits.abort(new Error("Nobody waits for it any more"));
    this.#forget(id, acquisition);
  }

  #forget(id: SandboxId, acquisition: PendingAcquisition): void {
    if (this.#pendingAcquisitions.get(id) === acquisition) this.#pendingAcquisitions.delete(id);
  }
}

async function orAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error);
    signal.addEventListener("abort", abort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
