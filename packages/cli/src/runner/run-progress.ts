import type { InstanceReport, RunEvent, StageName, Verdict } from "@atoll/runner";

/** One instance that is under way. */
export interface ActiveInstance {
  instance: string;
  /** The lowest number that no other active instance has, from 1. */
  slot: number;
  stage: StageName | "wait";
  startedAtMs: number;
  stageStartedAtMs: number;
  lastLine: string;
}

/** What a run has come to, as a fold over its events. Memory grows with the number of instances only. */
export class RunProgress {
  readonly #active = new Map<string, ActiveInstance>();
  readonly #counts = new Map<Verdict, number>();
  readonly #nowMs: () => number;
  readonly #startedAtMs: number;
  readonly #jobs: number;
  total = 0;
  done = 0;
  /** Instances that an earlier call of the run has finished. */
  skipped = 0;
  isDraining = false;
  #spentMs = 0;

  constructor({ jobs, nowMs = Date.now }: { jobs: number; nowMs?: () => number }) {
    this.#jobs = jobs;
    this.#nowMs = nowMs;
    this.#startedAtMs = nowMs();
  }

  take(event: RunEvent): void {
    switch (event.type) {
      case "run.start":
        this.total = event.instances.length;
        break;
      case "instance.start":
        this.#begin(event.instance);
        break;
      case "stage.start":
        this.#update(event.instance, { stage: event.stage, stageStartedAtMs: this.#nowMs(), lastLine: "" });
        break;
      case "command.start":
        this.#update(event.instance, { lastLine: event.argv.join(" ") });
        break;
      case "command.output":
        this.#update(event.instance, { lastLine: event.line });
        break;
      case "fix.apply":
        this.#update(event.instance, { lastLine: `fix ${event.fix.id}: ${event.fix.what}` });
        break;
      case "instance.end":
        this.#end(event.instance, event.report);
        break;
      case "run.drain":
        this.isDraining = true;
        break;
      case "stage.end":
      case "command.end":
      case "sandbox.start":
      case "sandbox.remove":
      case "attempt.end":
      case "run.end":
        break;
    }
  }

  /** The running instances, ordered by slot. */
  get active(): ActiveInstance[] {
    return [...this.#active.values()].toSorted((a, b) => a.slot - b.slot);
  }

  get counts(): [Verdict, number][] {
    return [...this.#counts];
  }

  get elapsedMs(): number {
    return this.#nowMs() - this.#startedAtMs;
  }

  /** `undefined` until an instance has ended: before that there is nothing to go by. */
  get leftMs(): number | undefined {
    if (this.done === 0) return undefined;
    const eachMs = this.#spentMs / this.done;
    const begunMs = this.active.reduce(
      (sum, { startedAtMs }) => sum + Math.min(eachMs, this.#nowMs() - startedAtMs),
      0,
    );
    const remaining = this.total - this.skipped - this.done;
    return Math.max(0, (remaining * eachMs - begunMs) / Math.min(this.#jobs, Math.max(1, remaining)));
  }

  #begin(instance: string): void {
    const taken = new Set(this.active.map(({ slot }) => slot));
    let slot = 1;
    while (taken.has(slot)) slot += 1;
    const nowMs = this.#nowMs();
    this.#active.set(instance, {
      instance,
      slot,
      stage: "wait",
      startedAtMs: nowMs,
      stageStartedAtMs: nowMs,
      lastLine: "",
    });
  }

  #update(instance: string, change: Partial<ActiveInstance>): void {
    const known = this.#active.get(instance);
    if (known !== undefined) Object.assign(known, change);
  }

  #end(instance: string, { verdict }: InstanceReport): void {
    const known = this.#active.get(instance);
    if (known !== undefined) this.#spentMs += this.#nowMs() - known.startedAtMs;
    this.#active.delete(instance);
    this.done += 1;
    this.#counts.set(verdict, (this.#counts.get(verdict) ?? 0) + 1);
  }
}
