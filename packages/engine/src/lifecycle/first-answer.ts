import { once } from "node:events";
import type { SandboxError, SandboxId } from "@atoll/protocol";
import { guestSilent } from "../guest/guest-watch.ts";
import { timeoutAfter } from "../support/timeout-after.ts";

export interface FirstAnswerOptions {
  /** How long the guest is waited for. */
  withinMs: number;
  /** Called when it has come, also later. */
  onReached: () => Promise<void>;
  onChange: (isSilent: boolean) => void;
  /** Called when it turns out later that there will be none. */
  onFailed: (error: unknown) => void;
}

/**
 * The first answer of a guest that a server before this one started. The sandbox runs meanwhile, and whoever asks
 * something of it is refused.
 */
export class FirstAnswer {
  #silence: SandboxError | undefined;
  #coming: Promise<void> = Promise.resolve();

  /** What whoever asks is told until it has come. */
  get silence(): SandboxError | undefined {
    return this.#silence;
  }

  /** When it has come; at once if none is waited for. */
  get coming(): Promise<void> {
    return this.#coming;
  }

  /** False: it has not come yet. Rejects if it turns out in time that there will be none. */
  async wait(id: SandboxId, answer: Promise<void>, options: FirstAnswerOptions): Promise<boolean> {
    const { withinMs, onReached, onChange, onFailed } = options;
    this.#silence = guestSilent(id, withinMs);
    this.#coming = answer.then(() => {
      this.#silence = undefined;
      return onReached();
    });
    const late = timeoutAfter(Promise.resolve(), withinMs);
    await Promise.race([this.#coming, once(late, "abort")]);
    if (this.#silence === undefined) return true;
    onChange(true);
    this.#coming.then(() => onChange(false), onFailed);
    return false;
  }
}
