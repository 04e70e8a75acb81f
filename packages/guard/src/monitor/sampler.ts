import { setImmediate as untilNextTurn } from "node:timers/promises";
import { LimitLevels, type LimitChange, type UsageHistory, type UsageSample } from "@atoll/protocol";
import { Enforcer } from "./enforcer.ts";
import type { Enforcement, Subject, Usage, Violation } from "./subject.ts";
import { UsageTotals } from "./usage-totals.ts";

/** A sample takes a tenth of a millisecond, in which requests wait: other work gets its turn after so many. */
const mostPerTurn = 16;

export interface SamplerOptions {
  /** The time between two samples of a subject. */
  intervalMs: number;
  /** How many samples of each subject are kept. */
  keep: number;
}

interface Watched {
  subject: Subject;
  samples: UsageSample[];
  levels: LimitLevels;
  enforcer: Enforcer;
  isReading: boolean;
}

/**
 * Samples everything that a server runs, sandboxes and applications, with one timer: what each uses, with a bounded
 * history. It reports limits that come near or are reached, and has done about them what the subject demands.
 */
export class Sampler {
  readonly totals = new UsageTotals();
  readonly #options: SamplerOptions;
  readonly #watched = new Map<string, Watched>();
  readonly #onViolation = new Set<(violation: Violation) => void>();
  readonly #onEnforcement = new Set<(enforcement: Enforcement) => void>();
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: SamplerOptions) {
    this.#options = options;
  }

  /** Watches a subject until the result is disposed of, which also forgets its history. */
  add(subject: Subject): Disposable {
    const watched: Watched = {
      subject,
      samples: [],
      levels: new LimitLevels(
        (change) => this.report(subject.id, change),
        () => subject.softLimit ?? 0.8,
      ),
      enforcer: new Enforcer(subject, (enforcement) => {
        this.totals.countEnforcement(enforcement);
        for (const listener of this.#onEnforcement) listener(enforcement);
      }),
      isReading: false,
    };
    this.#watched.get(subject.id)?.enforcer.close();
    this.#watched.set(subject.id, watched);
    this.#schedule();
    return {
      [Symbol.dispose]: () => {
        watched.enforcer.close();
        if (this.#watched.get(subject.id) !== watched) return;
        this.#watched.delete(subject.id);
        this.totals.forget(subject.id);
      },
    };
  }

  history(id: string): UsageHistory | undefined {
    const watched = this.#watched.get(id);
    if (watched === undefined) return undefined;
    const { intervalMs, keep: kept } = this.#options;
    return { intervalMs, kept, samples: [...watched.samples] };
  }

  /** Takes a change that another part has found, which watches the limits of this subject itself. */
  report(id: string, change: LimitChange): void {
    const watched = this.#watched.get(id);
    if (watched === undefined) return;
    const { limit, used, allowed } = change;
    if (change.type === "limit.eased") return watched.enforcer.ease(limit);
    const level = change.type === "limit.hit" ? "hard" : "soft";
    const consequence = change.type === "limit.hit" ? change.consequence : undefined;
    const { kind } = watched.subject;
    const violation: Violation = { id, kind, level, limit, used, allowed, atMs: Date.now(), consequence };
    this.totals.countViolation(violation);
    for (const listener of this.#onViolation) listener(violation);
    if (level === "hard") watched.enforcer.hit(violation);
  }

  /** Must be called when the subject was stopped or started again: limits that were hit before are not any more. */
  reset(id: string): void {
    this.#watched.get(id)?.enforcer.reset();
  }

  /** Calls `listener` at each violation from now on. Returns a function that ends that. */
  onViolation(listener: (violation: Violation) => void): () => void {
    this.#onViolation.add(listener);
    return () => this.#onViolation.delete(listener);
  }

  /** Calls `listener` when something was done about a violation, or could not be done. */
  onEnforcement(listener: (enforcement: Enforcement) => void): () => void {
    this.#onEnforcement.add(listener);
    return () => this.#onEnforcement.delete(listener);
  }

  /** Samples all subjects now. A subject whose last reading has not ended is left out. */
  async sample(): Promise<void> {
    let sampled = 0;
    const reading: Promise<void>[] = [];
    for (const watched of this.#watched.values()) {
      const startedMs = performance.now();
      reading.push(this.#sampleOne(watched));
      this.totals.countTime(performance.now() - startedMs);
      sampled += 1;
      if (sampled % mostPerTurn === 0) await untilNextTurn();
    }
    await Promise.all(reading);
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    for (const { enforcer } of this.#watched.values()) enforcer.close();
    this.#watched.clear();
  }

  /** There is no timer while there is nothing to sample. A reading that hangs does not delay the next sample. */
  #schedule(): void {
    if (this.#timer !== undefined || this.#isClosed) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void this.sample();
      if (this.#watched.size > 0) this.#schedule();
    }, this.#options.intervalMs).unref();
  }

  async #sampleOne(watched: Watched): Promise<void> {
    if (watched.isReading) return;
    watched.isReading = true;
    const { subject } = watched;
    try {
      const usage = await subject.read();
      if (usage !== undefined && this.#watched.get(subject.id) === watched) this.#take(watched, usage);
    } catch {
      // A subject that ends during the reading has no sample; other parts report its end.
    } finally {
      watched.isReading = false;
    }
  }

  #take(watched: Watched, usage: Usage): void {
    const { samples, subject } = watched;
    const sample = sampleOf(usage, samples.at(-1));
    samples.push(sample);
    if (samples.length > this.#options.keep) samples.shift();
    this.totals.take(subject.id, sample);
    compareAll(watched, sample);
  }
}

function sampleOf({ processes, ...usage }: Usage, before: UsageSample | undefined): UsageSample {
  const atMs = Date.now();
  const elapsedMs = before === undefined ? 0 : atMs - before.atMs;
  // The counter is that of another container when it is lower than before.
  const cpuMs = before === undefined || usage.cpuMs < before.cpuMs ? 0 : usage.cpuMs - before.cpuMs;
  const cpus = elapsedMs > 0 ? Math.round((cpuMs / elapsedMs) * 1_000) / 1_000 : 0;
  return { atMs, ...usage, cpus, ...(processes === undefined ? {} : { processes }) };
}

function compareAll({ subject, levels }: Watched, sample: UsageSample): void {
  const { memoryBytes, cpus, processes, diskBytes } = subject.limits ?? {};
  const readings = [
    ["memory", sample.memoryBytes, memoryBytes],
    ["cpu", sample.cpus, cpus],
    ["processes", sample.processes, processes],
    ["disk", sample.diskBytes, diskBytes],
  ] as const;
  for (const [limit, used, allowed] of readings) {
    if (used === undefined || allowed === undefined) continue;
    levels.compare(limit, { used, allowed }, used >= allowed ? "it uses all that it may" : undefined);
  }
}
