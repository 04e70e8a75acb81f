import type { UsageSample } from "@atoll/protocol";
import type { Enforcement, Violation } from "./subject.ts";

const counters = ["cpuMs", "sentBytes", "receivedBytes"] as const;

/** What all subjects of a server use together, for its metrics. */
export class UsageTotals {
  /** The time that samples took, which other work of the server waited for. */
  samplerMs = 0;
  /** These only grow, also when a subject ends. */
  readonly sums = { cpuMs: 0, sentBytes: 0, receivedBytes: 0 };
  readonly violations = new Map<string, { limit: string; level: string; count: number }>();
  readonly enforcements = new Map<string, { action: string; result: string; count: number }>();
  readonly #last = new Map<string, UsageSample>();

  /** What the running subjects use now. */
  get now(): { memoryBytes: number; processes: number; diskBytes: number } {
    const sum = { memoryBytes: 0, processes: 0, diskBytes: 0 };
    for (const { memoryBytes, processes = 0, diskBytes } of this.#last.values()) {
      sum.memoryBytes += memoryBytes;
      sum.processes += processes;
      sum.diskBytes += diskBytes;
    }
    return sum;
  }

  take(id: string, sample: UsageSample): void {
    const before = this.#last.get(id);
    for (const name of counters) {
      const from = before === undefined || sample[name] < before[name] ? 0 : before[name];
      this.sums[name] += sample[name] - from;
    }
    this.#last.set(id, sample);
  }

  forget(id: string): void {
    this.#last.delete(id);
  }

  countTime(ms: number): void {
    this.samplerMs += ms;
  }

  countViolation({ limit, level }: Violation): void {
    const key = `${limit} ${level}`;
    this.violations.set(key, { limit, level, count: (this.violations.get(key)?.count ?? 0) + 1 });
  }

  countEnforcement({ action, result }: Enforcement): void {
    const key = `${action} ${result}`;
    this.enforcements.set(key, { action, result, count: (this.enforcements.get(key)?.count ?? 0) + 1 });
  }
}
