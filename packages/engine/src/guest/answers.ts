import type { GuestMessage } from "./messages.ts";

interface Pending {
  resolve: (message: GuestMessage) => void;
  reject: (error: unknown) => void;
}

/** Requests that wait for their answer. An answer that nobody waits for any more is dropped. */
export class Answers {
  #pending = new Map<number, Pending>();

  /** Rejects with `signal.reason` if it aborts first. */
  async expect(id: number, signal: AbortSignal): Promise<GuestMessage> {
    let abort: () => void = () => undefined;
    try {
      return await new Promise<GuestMessage>((resolve, reject) => {
        abort = () => {
          reject(signal.reason as Error);
        };
        this.#pending.set(id, { resolve, reject });
        if (signal.aborted) abort();
        else signal.addEventListener("abort", abort, { once: true });
      });
    } finally {
      signal.removeEventListener("abort", abort);
      this.#pending.delete(id);
    }
  }

  resolve(id: number, message: GuestMessage): void {
    this.#pending.get(id)?.resolve(message);
  }

  reject(id: number, error: unknown): void {
    this.#pending.get(id)?.reject(error);
  }

  rejectAll(error: unknown): void {
    for (const pending of this.#pending.values()) pending.reject(error);
  }
}
