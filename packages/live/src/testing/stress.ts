import { messageOf } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";

export interface StressOptions {
  durationMs: number;
  /** How many operations are under way at a time. The default is 4. */
  concurrency?: number;
}

export interface OperationReport {
  completed: number;
  failed: number;
  /** Latencies of the completed ones, in milliseconds; of very many, those of a random sample. */
  latencyMs: { p50: number; p95: number; p99: number; max: number };
}

export interface StressReport extends OperationReport {
  durationMs: number;
  perSecond: number;
  byName: Record<string, OperationReport>;
  /** Messages of errors, the most frequent first. */
  errors: { message: string; count: number }[];
}

const maxSamples = 100_000;
const maxMessages = 100;

/** What happened to operations of one name, in bounded memory. */
class Tally {
  completed = 0;
  failed = 0;
  max = 0;
  readonly samples: number[] = [];

  add(ms: number): void {
    this.completed += 1;
    this.max = Math.max(this.max, ms);
    if (this.samples.length < maxSamples) this.samples.push(ms);
    else this.samples[Math.floor(Math.random() * maxSamples)] = ms;
  }

  report(): OperationReport {
    const sorted = this.samples.toSorted((a, b) => a - b);
    const at = (share: number): number => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
    const { completed, failed, max } = this;
    return { completed, failed, latencyMs: { p50: at(0.5), p95: at(0.95), p99: at(0.99), max } };
  }
}

/**
 * Runs operations over and over for a time, in the order of their names, and counts what became of them. The number
 * that an operation gets is unique. An error is counted and ends nothing.
 */
export async function stress(
  operations: Readonly<Record<string, (n: number) => unknown>>,
  { durationMs, concurrency = 4 }: StressOptions,
): Promise<StressReport> {
  const names = Object.keys(operations);
  if (names.length === 0 || !(durationMs > 0) || !(concurrency >= 1)) {
    throw new SandboxError("invalid_argument", "Cannot stress without operations, a duration and a concurrency", {
      suggestion: "Give at least one operation, and numbers above 0.",
    });
  }
  const startedAt = performance.now();
  const tallies = new Map(names.map((name) => [name, new Tally()]));
  const all = new Tally();
  const errors = new Map<string, number>();
  let n = 0;
  const worker = async (): Promise<void> => {
    while (performance.now() - startedAt < durationMs) {
      const number = n++;
      const name = names[number % names.length] ?? "";
      const tally = tallies.get(name);
      const began = performance.now();
      try {
        await operations[name]?.(number);
        const ms = performance.now() - began;
        tally?.add(ms);
        all.add(ms);
      } catch (error) {
        if (tally !== undefined) tally.failed += 1;
        all.failed += 1;
        const message = messageOf(error);
        if (errors.has(message) || errors.size < maxMessages) errors.set(message, (errors.get(message) ?? 0) + 1);
        // An operation that fails at once must not keep everything else from running.
        await new Promise((resolve) => setImmediate(resolve));
      }
    }
  };
  await Promise.all(Array.from({ length: Math.floor(concurrency) }, worker));
  const took = performance.now() - startedAt;
  return {
    ...all.report(),
    durationMs: took,
    perSecond: (all.completed * 1000) / took,
    byName: Object.fromEntries([...tallies].map(([name, tally]) => [name, tally.report()])),
    errors: [...errors].map(([message, count]) => ({ message, count })).toSorted((a, b) => b.count - a.count),
  };
}
