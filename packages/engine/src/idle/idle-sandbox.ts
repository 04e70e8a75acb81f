import type { TrafficListener } from "../guest/guest-line.ts";
import type { RunTally, TimerSlack } from "./timer-slack.ts";

/** Without a frame in either direction for this long, a sandbox may be idle. */
const quietMs = 1_000;
/**
 * What runs inside is then counted for this long. Shorter than the time between two questions of the usage monitor,
 * which make the guest run.
 */
const windowMs = 600;
/** The guest has answered a routine question by then, as a rule. */
const settleMs = 100;
/** After something ran inside, it is not counted again for this long. */
const busyRestMs = 2_000;
/** How often a sandbox with timer slack is checked for something that runs inside. */
const relaxedLookMs = 3_000;

/**
 * What may run inside an idle sandbox, in turns on a processor per second. A timer that fires takes one to three, so
 * this is a server that polls twice a second, or less. Late timers fire less often, so less is allowed then.
 */
const mostRuns = { punctual: 8, relaxed: 6 };
/** And in milliseconds per second. */
const mostMs = 10;
/** What wants to run all the time and may not, on a machine that is short of processors, waits for longer. */
const mostWaitMs = 200;

export interface IdleSandboxOptions {
  slackMs: number;
  now: () => number;
  /** From now on `look` is to be called when it is due. */
  onWatched: (sandbox: IdleSandbox) => void;
  /** The slack cannot be changed. */
  onError: (error: unknown) => void;
}

/** Undefined: the container costs nothing while it is idle. */
type FindSlack = () => Promise<TimerSlack | undefined>;

/**
 * Decides when one sandbox is idle, gives its container timer slack then, and removes it before anything is asked of
 * the sandbox. Idle means: no frame passes between host and guest, and next to nothing runs inside.
 */
export class IdleSandbox implements TrafficListener {
  #options: IdleSandboxOptions;
  /** Of the container that it is watched in. */
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

  /** When to look next, on the clock of `now`. */
  get dueMs(): number {
    return this.#dueMs;
  }

  /** In a container whose timers are punctual. `find` is asked when the sandbox has been quiet for the first time. */
  watch(find: FindSlack): void {
    this.leave();
    this.#find = find;
    this.#touch();
    this.#dueMs = this.#quietSinceMs + quietMs;
    this.#options.onWatched(this);
  }

  /** Removes the slack and lets go of the container. */
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
    // It is answered as it is, at most late. What the guest does for it is not counted.
    if (this.#sample === undefined) return;
    this.#sample = undefined;
    this.#dueMs = this.#options.now() + settleMs;
  }

  onReceive(isRoutine: boolean): void {
    if (!isRoutine) this.#touch();
  }

  /** No slack until the result is disposed of: work is done on the container that does not pass through the guest. */
  hold(): Disposable {
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

  /** To be called when it is due. */
  look(): void {
    const nowMs = this.#options.now();
    if (this.#holds > 0) this.#touch();
    const quietAtMs = this.#quietSinceMs + quietMs;
    if (nowMs < quietAtMs) this.#dueMs = quietAtMs;
    else if (this.#slack === undefined) void this.#findSlack();
    else this.#count(this.#slack, nowMs);
  }

  /** One that cannot be found stays as it is: its container is about to go, or was started by an older version. */
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
    // Less than before: a process has ended, so something ran.
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
