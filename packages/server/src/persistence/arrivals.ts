import type { SandboxId } from "@atoll/protocol";

interface Arrival {
  done: Promise<void>;
  interested: number;
  nobodyWaits: AbortController;
}

/** Sandboxes on their way here: however many requests wait for one, it is fetched once, and no longer when all of them have left. */
export class Arrivals {
  readonly #take: (id: SandboxId, signal: AbortSignal) => Promise<void>;
  readonly #arrivals = new Map<SandboxId, Arrival>();

  constructor(take: (id: SandboxId, signal: AbortSignal) => Promise<void>) {
    this.#take = take;
  }

  has(id: SandboxId): boolean {
    return this.#arrivals.has(id);
  }

  async await(id: SandboxId, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const arrival = this.#arrivals.get(id) ?? this.#begin(id);
    arrival.interested += 1;
    try {
      await orAborted(arrival.done, signal);
    } finally {
      arrival.interested -= 1;
      if (arrival.interested === 0) this.#giveUp(id, arrival);
    }
  }

  #begin(id: SandboxId): Arrival {
    const nobodyWaits = new AbortController();
    const done = this.#take(id, nobodyWaits.signal);
    const arrival = { done, interested: 0, nobodyWaits };
    this.#arrivals.set(id, arrival);
    const end = (): void => this.#forget(id, arrival);
    done.then(end, end);
    return arrival;
  }

  /** Whoever asks from now on begins anew. */
  #giveUp(id: SandboxId, arrival: Arrival): void {
    arrival.nobodyWaits.abort(new Error("Nobody waits for it any more"));
    this.#forget(id, arrival);
  }

  #forget(id: SandboxId, arrival: Arrival): void {
    if (this.#arrivals.get(id) === arrival) this.#arrivals.delete(id);
  }
}

async function orAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error);
    signal.addEventListener("abort", abort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
