import type { GuestWatch } from "./guest-watch.ts";
import type { GuestMessage } from "./messages.ts";

interface Pending {
  resolve: (message: GuestMessage) => void;
  reject: (error: unknown) => void;
}

/** Requests that wait for their answer. An answer without a waiting request is dropped. */
export class Answers {
  #pending = new Map<number, Pending>();

  /** Rejects with `signal.reason` if that aborts first, and with `guest_silent` if the watch finds the guest silent. */
  async expect(id: number, signal: AbortSignal, watch?: GuestWatch): Promise<GuestMessage> {
    const done = watch?.expect({ onSilent: (error) => this.reject(id, error), isPrompt: true });
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
      done?.();
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
