import type { TrafficListener } from "../guest/guest-line.ts";
import type { RunTally, TimerSlack } from "./timer-slack.ts";

/** A sandbox may be idle when no frame has passed in either direction for this long. */
const quietMs = 1_000;
/**
 * Then the activity inside is counted for this long. This is shorter than the time between two questions of the usage
 * monitor, which make the guest run.
 */
const windowMs = 600;
/** The guest has usually answered a routine question within this time. */
const settleMs = 100;
/** After something ran inside, the activity is not counted again for this long. */
const busyRestMs = 2_000;
/** How often a sandbox with timer slack is checked for activity inside. */
const relaxedLookMs = 3_000;

/**
 * The most turns on a processor per second that may happen inside an idle sandbox. A timer that fires takes one to
 * three, so this allows a server that polls twice a second, or less. Late timers fire less often, so less is allowed
 * then.
 */
const mostRuns = { punctual: 8, relaxed: 6 };
/** The most milliseconds of CPU time per second. */
const mostMs = 10;
/**
 * The most milliseconds per second that threads may wait for a processor. A process that wants to run all the time, on
 * a machine that is short of processors, waits for longer.
 */
const mostWaitMs = 200;

export interface IdleSandboxOptions {
  slackMs: number;
  now: () => number;
  /** Called when `look` must be called from now on, whenever it is due. */
  onWatched: (sandbox: IdleSandbox) => void;
  /** Called when the slack cannot be changed. */
  onError: (error: unknown) => void;
}

/** Resolves to undefined if the container costs nothing while it is idle. */
type FindSlack = () => Promise<TimerSlack | undefined>;

/**
 * Decides when one sandbox is idle, gives its container timer slack then, and removes the slack before the sandbox gets
 * a request. A sandbox is idle when no frame passes between host and guest, and next to nothing runs inside.
 */
export class IdleSandbox implements TrafficListener {
  #options: IdleSandboxOptions;
  /** Finds the slack of the container that is being watched. */
  #find: FindSlack | undefined;
  #slack: TimerSlack | undefined;
  #quietSinceMs = 0;
  #sample: { atMs: number; tally: RunTally } | undefined;
  #dueMs = Infinity;
  #isRelaxed = false;
  #holds = 0;

  constructor(options: IdleSandboxOptions) {
    this.#options = options;
  }

  get isWatched(): boolean {
    return this.#find !== undefined;
  }

  /** The time of the next `look`, on the clock of `now`. */
  get dueMs(): number {
    return this.#dueMs;
  }

  /**
   * Watches a container whose timers are punctual. `find` is called when the sandbox has been quiet for the first time.
   */
  watch(find: FindSlack): void {
    this.leave();
    this.#find = find;
    this.#touch();
    this.#dueMs = this.#quietSinceMs + quietMs;
    this.#options.onWatched(this);
  }

  /** Removes the slack and stops watching the container. */
  leave(): void {
    this.removeSlack();
    this.#find = undefined;
    this.#slack?.[Symbol.dispose]();
    this.#slack = undefined;
    this.#sample = undefined;
    this.#dueMs = Infinity;
  }

  onSend(isRoutine: boolean): void {
    if (!isRoutine) return this.#touch();
    // A routine question is answered with slack as well, only a little late. What the guest does for it is not counted.
    if (this.#sample === undefined) return;
    this.#sample = undefined;
    this.#dueMs = this.#options.now() + settleMs;
  }

  onReceive(isRoutine: boolean): void {
    if (!isRoutine) this.#touch();
  }

  /** Prevents slack until the result is disposed of, for work on the container that does not pass through the guest. */
  preventSlack(): Disposable {
    this.#holds += 1;
    this.#touch();
    return {
      [Symbol.dispose]: () => {
        this.#holds -= 1;
        this.#touch();
      },
    };
  }

  removeSlack(): void {
    if (!this.#isRelaxed) return;
    this.#isRelaxed = false;
    this.#sample = undefined;
    this.#dueMs = this.#options.now() + quietMs;
    this.#try((slack) => slack.remove());
  }

  /** Must be called when it is due. */
  look(): void {
    const nowMs = this.#options.now();
    if (this.#holds > 0) this.#touch();
    const quietAtMs = this.#quietSinceMs + quietMs;
    if (nowMs < quietAtMs) this.#dueMs = quietAtMs;
    else if (this.#slack === undefined) void this.#findSlack();
    else this.#count(this.#slack, nowMs);
  }

  /**
   * If the slack cannot be found, the container stays as it is: it is about to go, or was started by an older version.
   */
  async #findSlack(): Promise<void> {
    this.#dueMs = Infinity;
    const find = this.#find;
    const slack = await find?.().catch(() => undefined);
    if (this.#find !== find) return;
    if (slack === undefined) return this.leave();
    this.#slack = slack;
    this.#dueMs = this.#options.now();
  }

  #count(slack: TimerSlack, nowMs: number): void {
    const before = this.#sample;
    const tally = slack.readRuns();
    this.#sample = tally === undefined ? undefined : { atMs: nowMs, tally };
    if (tally === undefined) return this.#foundBusy(nowMs);
    if (before === undefined) this.#dueMs = nowMs + windowMs;
    else if (this.#isIdle(before, { atMs: nowMs, tally })) this.#foundIdle(nowMs);
    else this.#foundBusy(nowMs);
  }

  #isIdle(before: { atMs: number; tally: RunTally }, after: { atMs: number; tally: RunTally }): boolean {
    const seconds = (after.atMs - before.atMs) / 1000;
    const runs = after.tally.runs - before.tally.runs;
    const ms = after.tally.ms - before.tally.ms;
    const waitMs = after.tally.waitMs - before.tally.waitMs;
    // The sums are smaller than before, so a process has ended, and something ran.
    if (runs < 0 || ms < 0) return false;
    const most = mostRuns[this.#isRelaxed ? "relaxed" : "punctual"];
    return runs <= most * seconds && ms <= mostMs * seconds && waitMs <= mostWaitMs * seconds;
  }

  #foundIdle(nowMs: number): void {
    this.#dueMs = nowMs + relaxedLookMs;
    if (this.#isRelaxed) return;
    this.#isRelaxed = true;
    this.#try((slack) => slack.allow(this.#options.slackMs));
  }

  #foundBusy(nowMs: number): void {
    this.removeSlack();
    this.#sample = undefined;
    this.#dueMs = nowMs + busyRestMs;
  }

  #touch(): void {
    this.#quietSinceMs = this.#options.now();
    this.#sample = undefined;
    this.removeSlack();
  }

  #try(change: (slack: TimerSlack) => void): void {
    try {
      if (this.#slack !== undefined) change(this.#slack);
    } catch (error) {
      this.leave();
      this.#options.onError(error);
    }
  }
}
