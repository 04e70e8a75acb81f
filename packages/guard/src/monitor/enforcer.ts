import { messageOf } from "@atoll/host";
import type { HardLimitAction, LimitName } from "@atoll/protocol";
import type { Enforcement, Subject, Violation } from "./subject.ts";

/** While a limit stays hit, the action is repeated after this time, and then after twice as long each time. */
const firstRepeatMs = 5_000;
const longestRepeatMs = 300_000;

/**
 * Does what a subject's profile demands when it reaches a limit: one action at a time, and a throttle only until all
 * limits are far again.
 */
export class Enforcer {
  readonly #subject: Subject;
  readonly #onEnforced: (enforcement: Enforcement) => void;
  readonly #hit = new Set<LimitName>();
  #turn: Promise<void> = Promise.resolve();
  #isBusy = false;
  #isThrottled = false;
  #isOver = false;
  #repeatMs = firstRepeatMs;
  #timer: NodeJS.Timeout | undefined;

  constructor(subject: Subject, onEnforced: (enforcement: Enforcement) => void) {
    this.#subject = subject;
    this.#onEnforced = onEnforced;
  }

  hit(violation: Violation): void {
    this.#hit.add(violation.limit);
    const action = this.#actionFor(violation.limit);
    // Further hits, while something is being done about the first, are hits of the same excess.
    if (action === undefined || this.#isBusy || this.#isOver) return;
    if (action === "throttle" && this.#isThrottled) return;
    this.#isBusy = true;
    clearTimeout(this.#timer);
    this.#inTurn(async () => {
      try {
        await this.#enforce(action, violation);
      } finally {
        this.#isBusy = false;
        this.#repeatLater(violation);
      }
    });
  }

  ease(limit: LimitName): void {
    this.#hit.delete(limit);
    if (this.#hit.size > 0) return;
    clearTimeout(this.#timer);
    this.#repeatMs = firstRepeatMs;
    this.#inTurn(async () => {
      if (!this.#isThrottled || this.#hit.size > 0 || this.#isOver) return;
      this.#isThrottled = false;
      await this.#subject.relax?.();
    });
  }

  /** Forgets what was hit and what was done about it: the subject was paused, resumed or started again. */
  reset(): void {
    this.#hit.clear();
    this.#isThrottled = false;
    this.#repeatMs = firstRepeatMs;
    clearTimeout(this.#timer);
  }

  close(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
  }

  /** The limit of CPU time is a share, which the kernel keeps by throttling: to use all of it is no excess. */
  #actionFor(limit: LimitName): HardLimitAction | undefined {
    return limit === "cpu" || limit === "lifetime" ? undefined : this.#subject.onHardLimit;
  }

  async #enforce(action: HardLimitAction, violation: Violation): Promise<void> {
    const { enforce } = this.#subject;
    try {
      if (enforce === undefined) throw new Error(`nothing can ${action} this ${violation.kind}`);
      const because = await enforce(action, violation);
      if (action === "throttle") this.#isThrottled = true;
      if (because !== undefined) this.#onEnforced({ violation, action, result: "done", because });
    } catch (error) {
      this.#onEnforced({ violation, action, result: "failed", because: messageOf(error) });
    }
  }

  #repeatLater(violation: Violation): void {
    if (this.#isOver || !this.#hit.has(violation.limit)) return;
    this.#timer = setTimeout(() => {
      if (this.#hit.has(violation.limit)) this.hit(violation);
    }, this.#repeatMs).unref();
    this.#repeatMs = Math.min(this.#repeatMs * 2, longestRepeatMs);
  }

  #inTurn(work: () => Promise<void>): void {
    // A failure to relax leaves a subject slower than it has to be until its next container, and nothing else.
    this.#turn = this.#turn.then(work).catch(() => undefined);
  }
}
