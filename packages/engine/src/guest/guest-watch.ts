import { SandboxError, type SandboxId } from "@atoll/protocol";

/** The share of the answer time that passes before the guest is pinged. */
const shareBeforePing = 1 / 3;

export interface GuestWatchOptions {
  sandboxId: SandboxId;
  /** A guest that has left a question unanswered for so long is silent. */
  timeoutMs: number;
  /** Says whether the host itself has stopped the sandbox, which is no silence. */
  mayBeStill: () => boolean;
  onChange: (isSilent: boolean) => void;
}

export interface Expectation {
  /** Called when the guest is silent, and then again and again until it answers or nothing is expected any more. */
  onSilent: (error: SandboxError) => void;
  /** An answer is not late before so much time has passed. */
  afterMs?: number;
  /**
   * Whether the guest answers this at once or never: then the silence is reported in time, whatever else the guest
   * answers.
   */
  isPrompt?: boolean;
}

/**
 * Notices a guest that does not answer: code inside can stop it, and a machine can be too busy for it. While nothing
 * waits for the guest it gets no question, so that an idle sandbox stays idle; when something has been expected for too
 * long it is pinged.
 */
export class GuestWatch {
  readonly #options: GuestWatchOptions;
  readonly #ping: (signal: AbortSignal) => Promise<void>;
  readonly #overdue = new Set<Expectation>();
  #pingTimer: NodeJS.Timeout | undefined;
  #silence: SandboxError | undefined;
  #closed = new AbortController();

  /** `ping` asks the guest for a sign of life and resolves when it comes, however late. */
  constructor(options: GuestWatchOptions, ping: (signal: AbortSignal) => Promise<void>) {
    this.#options = options;
    this.#ping = ping;
  }

  /** The error that requests to the guest get while it is silent; undefined if it answers, as far as is known. */
  get silence(): SandboxError | undefined {
    return this.#silence;
  }

  assertAnswers(): void {
    if (this.#silence !== undefined) throw this.#silence;
  }

  /** Returns a function that ends the expectation. */
  expect(expectation: Expectation): () => void {
    const { timeoutMs, mayBeStill } = this.#options;
    const tickMs = timeoutMs * shareBeforePing;
    let ticks = 0;
    const tick = (): void => {
      ticks = mayBeStill() ? 0 : ticks + 1;
      timer = setTimeout(tick, tickMs);
      timer.unref();
      if (ticks === 0 || this.#closed.signal.aborted) return;
      this.#overdue.add(expectation);
      this.#ask();
      const isLate = expectation.isPrompt === true && ticks * shareBeforePing >= 1;
      if (this.#silence !== undefined || isLate) expectation.onSilent(this.#silence ?? this.#error());
    };
    let timer = setTimeout(tick, (expectation.afterMs ?? 0) + tickMs);
    timer.unref();
    return () => {
      clearTimeout(timer);
      this.#overdue.delete(expectation);
    };
  }

  expectUntil(settled: Promise<unknown>, expectation: Expectation): void {
    const done = this.expect(expectation);
    settled.then(done, done);
  }

  /** Called at every sign of life that only the guest can give. */
  answered(): void {
    clearTimeout(this.#pingTimer);
    this.#pingTimer = undefined;
    if (this.#silence === undefined) return;
    this.#silence = undefined;
    this.#options.onChange(false);
  }

  close(): void {
    this.#closed.abort();
    clearTimeout(this.#pingTimer);
    this.#overdue.clear();
  }

  #ask(): void {
    if (this.#pingTimer !== undefined || this.#silence !== undefined) return;
    this.#awaitAnswer();
    void this.#ping(this.#closed.signal).then(
      () => this.answered(),
      () => undefined,
    );
  }

  #awaitAnswer(): void {
    const { timeoutMs, mayBeStill } = this.#options;
    this.#pingTimer = setTimeout(
      () => (mayBeStill() ? this.#awaitAnswer() : this.#fallSilent()),
      timeoutMs * (1 - shareBeforePing),
    );
    this.#pingTimer.unref();
  }

  #fallSilent(): void {
    if (this.#closed.signal.aborted) return;
    const error = this.#error();
    this.#silence = error;
    this.#options.onChange(true);
    for (const { onSilent } of this.#overdue) onSilent(error);
  }

  #error(): SandboxError {
    return guestSilent(this.#options.sandboxId, this.#options.timeoutMs);
  }
}

export function guestSilent(sandboxId: SandboxId, forMs: number): SandboxError {
  return new SandboxError(
    "guest_silent",
    `Cannot reach the inside of sandbox ${sandboxId}: its guest has not answered for ${forMs} ms`,
    {
      suggestion:
        "It gets no CPU time, or a process inside has stopped PID 1. Try again, snapshot its files, or kill it.",
      details: { sandboxId },
    },
  );
}
