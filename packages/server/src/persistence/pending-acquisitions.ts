import type { SandboxId } from "@atoll/protocol";

interface PendingAcquisition {
  done: Promise<void>;
  waiters: number;
  abandoned: AbortController;
}

/**
 * The acquisitions in progress: however many requests wait for a sandbox, it is fetched once, and the work stops when
 * all of them have left.
 */
export class PendingAcquisitions {
  readonly #acquire: (id: SandboxId, signal: AbortSignal) => Promise<void>;
  readonly #pending = new Map<SandboxId, PendingAcquisition>();

  constructor(acquire: (id: SandboxId, signal: AbortSignal) => Promise<void>) {
    this.#acquire = acquire;
  }

  has(id: SandboxId): boolean {
    return this.#pending.has(id);
  }

  async await(id: SandboxId, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const acquisition = this.#pending.get(id) ?? this.#begin(id);
    acquisition.waiters += 1;
    try {
      await orAborted(acquisition.done, signal);
    } finally {
      acquisition.waiters -= 1;
      if (acquisition.waiters === 0) this.#abandon(id, acquisition);
    }
  }

  #begin(id: SandboxId): PendingAcquisition {
    const abandoned = new AbortController();
    const done = this.#acquire(id, abandoned.signal);
    const acquisition = { done, waiters: 0, abandoned };
    this.#pending.set(id, acquisition);
    const end = (): void => this.#forget(id, acquisition);
    done.then(end, end);
    return acquisition;
  }

  /** Stops an acquisition that no request waits for. Later requests begin another one. */
  #abandon(id: SandboxId, acquisition: PendingAcquisition): void {
    acquisition.abandoned.abort(new Error("No request waits for the sandbox any more"));
    this.#forget(id, acquisition);
  }

  #forget(id: SandboxId, acquisition: PendingAcquisition): void {
    if (this.#pending.get(id) === acquisition) this.#pending.delete(id);
  }
}

async function orAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error);
    signal.addEventListener("abort", abort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
