import { SandboxError, type DriverName, type SandboxTimeouts } from "@atoll/protocol";

/** What could not be done at a timeout is tried again after this. */
const againMs = 30_000;

/** Node cannot wait longer than this at once. */
const longestTimerMs = 2 ** 31 - 1;

export interface IdleClockOptions {
  /** When it was created, or last resumed. */
  startedAtMs: number;
  timeouts: () => SandboxTimeouts;
  /** Whether a command is known to run. Whoever makes it false calls `touch`. */
  hasWork: () => boolean;
  /**
   * Whether anything else runs inside. Nobody tells when that ends, so it is asked when the idle time is over, and
   * again after as long.
   */
  findsWork: () => Promise<boolean>;
  /** Called once, and once more after each `restart` or `again`. */
  onTimeout: (which: "idle" | "lifetime") => void;
}

/** Knows when a sandbox is to end: at its lifetime's end, or after it has been idle for long enough. */
export class IdleClock {
  readonly #options: IdleClockOptions;
  #startedAtMs: number;
  #lastActivityMs = Date.now();
  #openThings = 0;
  #timer: NodeJS.Timeout | undefined;
  #isStopped = false;
  #isClosed = false;

  constructor(options: IdleClockOptions) {
    this.#options = options;
    this.#startedAtMs = options.startedAtMs;
    this.#arm();
  }

  /** Something was asked of the sandbox, or has just ended in it. */
  touch(): void {
    this.#lastActivityMs = Date.now();
    if (this.#timer === undefined) this.#arm();
  }

  /** Something is open, and the sandbox is not idle until the result is called. */
  open(): () => void {
    this.#openThings += 1;
    let isOpen = true;
    return () => {
      if (!isOpen) return;
      isOpen = false;
      this.#openThings -= 1;
      this.touch();
    };
  }

  /** When it will end if nothing happens; while it is busy only its lifetime counts. */
  get endsAtMs(): number | undefined {
    if (this.#isStopped) return undefined;
    const ends = [this.#idleEndMs(), this.#lifetimeEndMs()].filter((end) => end !== undefined);
    return ends.length === 0 ? undefined : Math.min(...ends);
  }

  /** The timeouts were changed. */
  reset(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#arm();
  }

  /** The sandbox begins anew: it was resumed, or could not be paused. */
  restart(): void {
    this.#isStopped = false;
    this.#startedAtMs = this.#lastActivityMs = Date.now();
    this.reset();
  }

  /** After a stop: its time goes on as if there had been none. */
  start(): void {
    if (!this.#isStopped) return;
    this.#isStopped = false;
    this.reset();
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  /** For good. */
  close(): void {
    this.#isClosed = true;
    this.stop();
  }

  /** What was to happen at the timeout could not be done: its time is over, so it is told soon again. */
  again(which: "idle" | "lifetime"): void {
    if (this.#isClosed) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#timeOut(which), againMs);
    this.#timer.unref();
  }

  #idleEndMs(): number | undefined {
    const { idleMs } = this.#options.timeouts();
    if (idleMs === undefined || this.#openThings > 0 || this.#options.hasWork()) return undefined;
    return this.#lastActivityMs + idleMs;
  }

  #lifetimeEndMs(): number | undefined {
    const { lifetimeMs } = this.#options.timeouts();
    return lifetimeMs === undefined ? undefined : this.#startedAtMs + lifetimeMs;
  }

  /**
   * A timer that rings too early, because something happened since, is set again: cheaper than setting it at every
   * request.
   */
  #arm(): void {
    this.#timer = undefined;
    const end = this.endsAtMs;
    if (this.#isStopped || end === undefined) return;
    const ring = (): void => {
      const now = Date.now();
      const isAt = (moment: number | undefined): boolean => moment !== undefined && moment <= now;
      if (isAt(this.#lifetimeEndMs())) return this.#timeOut("lifetime");
      if (isAt(this.#idleEndMs())) return void this.#lookInside();
      this.#arm();
    };
    this.#timer = setTimeout(ring, Math.min(Math.max(1, end - Date.now()), longestTimerMs));
    this.#timer.unref();
  }

  async #lookInside(): Promise<void> {
    this.#timer = undefined;
    const isBusy = await this.#options.findsWork();
    // Stopped or set anew meanwhile.
    if (this.#isStopped || this.#timer !== undefined) return;
    const end = this.#idleEndMs();
    if (!isBusy && end !== undefined && end <= Date.now()) return this.#timeOut("idle");
    if (isBusy) this.#lastActivityMs = Date.now();
    this.#arm();
  }

  #timeOut(which: "idle" | "lifetime"): void {
    this.stop();
    this.#options.onTimeout(which);
  }
}

/** Throws `unsupported` for what no clock of this server can do. */
export function assertSupported({ onTimeout }: SandboxTimeouts, driver: DriverName): void {
  if (onTimeout === "kill" || driver === "gvisor") return;
  throw new SandboxError("unsupported", `Cannot pause a sandbox at its timeout: driver ${driver} cannot save memory`, {
    suggestion: 'Use driver gvisor, or onTimeout: "kill".',
  });
}
