import { SandboxError, type SandboxId } from "@atoll/protocol";

/** Of the time that a guest has to answer, what passes before it is asked whether it is there. */
const shareBeforePing = 1 / 3;

export interface GuestWatchOptions {
  sandboxId: SandboxId;
  /** A guest that has left a question unanswered for so long is silent. */
  timeoutMs: number;
  /** Whether its sandbox stands still because the host wants it to. That is no silence. */
  mayBeStill: () => boolean;
  onChange: (isSilent: boolean) => void;
}

export interface Expectation {
  /** Called when the guest is silent, and then again and again until it answers or nothing is expected any more. */
  onSilent: (error: SandboxError) => void;
  /** Nothing is amiss before so much time has passed. */
  afterMs?: number;
  /** Whether the guest answers this at once or never: it is told as silent in time, whatever else the guest answers. */
  isPrompt?: boolean;
}

/**
 * Notices a guest that does not answer: code inside can stop it, and a machine can be too busy for it. It is asked
 * nothing as long as nobody waits for it, so that a sandbox at rest stays at rest; when something has been expected for
 * too long it is pinged.
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

  /** What whoever wants something of the guest is told; undefined: it answers, as far as is known. */
  get silence(): SandboxError | undefined {
    return this.#silence;
  }

  assertAnswers(): void {
    if (this.#silence !== undefined) throw this.#silence;
  }

  /** What is returned ends the expectation. */
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

  /** The guest has given a sign of life that only it can give. */
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
        "It has no CPU time left, or something inside has stopped PID 1. Try again, take a snapshot of its files, or kill it.",
      details: { sandboxId },
    },
  );
}
