import { SandboxError, type DriverName, type SandboxTimeouts } from "@atoll/protocol";

/** The time after which a failed pause or kill at a timeout is retried. */
const retryMs = 30_000;

/** The longest delay of a Node timer. */
const longestTimerMs = 2 ** 31 - 1;

export interface IdleClockOptions {
  /** The time when the sandbox was created, or last resumed. */
  startedAtMs: number;
  timeouts: () => SandboxTimeouts;
  /** How much longer it may run than since `startedAtMs`, if its profile limits that. */
  runTimeMs: () => number | undefined;
  /** Reports whether a command is known to run. The code that makes it false calls `touch`. */
  hasWork: () => boolean;
  /**
   * Reports whether any other process runs inside. The end of such a process is not reported to the server, so this is
   * called when the idle time is over, and again after the same time.
   */
  findsWork: () => Promise<boolean>;
  /** Called at a timeout, and once more after each `restart` or `retry`. */
  onTimeout: (which: Timeout) => void;
}

/** The time of a sandbox that is over. */
export type Timeout = "idle" | "lifetime" | "run_time";

/**
 * Decides when the time of a sandbox is over: at the end of its lifetime, when it has run for as long as its profile
 * allows, or after it was idle for long enough.
 */
export class IdleClock {
  readonly #options: IdleClockOptions;
  #startedAtMs: number;
  #lastActivityMs = Date.now();
  #retainCount = 0;
  #timer: NodeJS.Timeout | undefined;
  #isStopped = false;
  #isClosed = false;

  constructor(options: IdleClockOptions) {
    this.#options = options;
    this.#startedAtMs = options.startedAtMs;
    this.#arm();
  }

  /** Records that a request used the sandbox, or that something has just ended in it. */
  touch(): void {
    this.#lastActivityMs = Date.now();
    if (this.#timer === undefined) this.#arm();
  }

  /** Retains the sandbox: it is not idle until the returned function is called. */
  retain(): () => void {
    this.#retainCount += 1;
    let isRetained = true;
    return () => {
      if (!isRetained) return;
      isRetained = false;
      this.#retainCount -= 1;
      this.touch();
    };
  }

  /** The time when it will end if nothing happens; while it is busy, only its lifetime and its run time count. */
  get endsAtMs(): number | undefined {
    if (this.#isStopped) return undefined;
    const ends = [this.#idleEndMs(), this.#lifetimeEndMs(), this.#runTimeEndMs()].filter((end) => end !== undefined);
    return ends.length === 0 ? undefined : Math.min(...ends);
  }

  /** Applies changed timeouts. */
  reset(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#arm();
  }

  /** Starts all timeouts again, because the sandbox was resumed or could not be paused. */
  restart(): void {
    this.#isStopped = false;
    this.#startedAtMs = this.#lastActivityMs = Date.now();
    this.reset();
  }

  /** Continues after a stop, as if there had been none. */
  start(): void {
    if (!this.#isStopped) return;
    this.#isStopped = false;
    this.reset();
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  /** Stops the clock for good. */
  close(): void {
    this.#isClosed = true;
    this.stop();
  }

  /** Reports the timeout once more after a delay, because the sandbox could not be paused or killed. */
  retry(which: Timeout): void {
    if (this.#isClosed) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#timeOut(which), retryMs);
    this.#timer.unref();
  }

  #idleEndMs(): number | undefined {
    const { idleMs } = this.#options.timeouts();
    if (idleMs === undefined || this.#retainCount > 0 || this.#options.hasWork()) return undefined;
    return this.#lastActivityMs + idleMs;
  }

  #lifetimeEndMs(): number | undefined {
    const { lifetimeMs } = this.#options.timeouts();
    return lifetimeMs === undefined ? undefined : this.#startedAtMs + lifetimeMs;
  }

  #runTimeEndMs(): number | undefined {
    const runTimeMs = this.#options.runTimeMs();
    return runTimeMs === undefined ? undefined : this.#startedAtMs + runTimeMs;
  }

  /**
   * Sets the timer. A timer that fires too early, because the sandbox was used since, is set again: this is cheaper
   * than setting it at every request.
   */
  #arm(): void {
    this.#timer = undefined;
    const end = this.endsAtMs;
    if (this.#isStopped || end === undefined) return;
    const fire = (): void => {
      const now = Date.now();
      const isAt = (moment: number | undefined): boolean => moment !== undefined && moment <= now;
      if (isAt(this.#runTimeEndMs())) return this.#timeOut("run_time");
      if (isAt(this.#lifetimeEndMs())) return this.#timeOut("lifetime");
      if (isAt(this.#idleEndMs())) return void this.#lookInside();
      this.#arm();
    };
    this.#timer = setTimeout(fire, Math.min(Math.max(1, end - Date.now()), longestTimerMs));
    this.#timer.unref();
  }

  async #lookInside(): Promise<void> {
    this.#timer = undefined;
    const isBusy = await this.#options.findsWork();
    // The clock may have been stopped or set while the guest was asked.
    if (this.#isStopped || this.#timer !== undefined) return;
    const end = this.#idleEndMs();
    if (!isBusy && end !== undefined && end <= Date.now()) return this.#timeOut("idle");
    if (isBusy) this.#lastActivityMs = Date.now();
    this.#arm();
  }

  #timeOut(which: Timeout): void {
    this.stop();
    this.#options.onTimeout(which);
  }
}

/** Throws `unsupported` if the driver cannot do what the timeouts ask for. */
export function assertSupported({ onTimeout }: SandboxTimeouts, driver: DriverName): void {
  if (onTimeout === "kill" || driver === "gvisor") return;
  throw new SandboxError("unsupported", `Cannot pause a sandbox at its timeout: driver ${driver} cannot save memory`, {
    suggestion: 'Use driver gvisor, or onTimeout: "kill".',
  });
}
