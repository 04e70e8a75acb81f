import { once } from "node:events";
import type { SandboxError, SandboxId } from "@atoll/protocol";
import { guestSilent } from "../guest/guest-watch.ts";
import { timeoutAfter } from "../support/timeout-after.ts";

export interface FirstAnswerOptions {
  /** How long to wait for the guest. */
  withinMs: number;
  /** Called when the answer has come, however late. */
  onReached: () => Promise<void>;
  onChange: (isSilent: boolean) => void;
  /** Called when it turns out after that time that there will be no answer. */
  onFailed: (error: unknown) => void;
}

/**
 * The first answer of a guest that an earlier server started. The sandbox counts as running until then, and its
 * requests are refused.
 */
export class FirstAnswer {
  #silence: SandboxError | undefined;
  #coming: Promise<void> = Promise.resolve();

  /** The error that requests get until the answer has come. */
  get silence(): SandboxError | undefined {
    return this.#silence;
  }

  /** Resolves when the answer has come; at once if none is waited for. */
  get arrived(): Promise<void> {
    return this.#coming;
  }

  /**
   * Resolves to false if the answer has not come in time. Rejects if it turns out in that time that there will be none.
   */
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
