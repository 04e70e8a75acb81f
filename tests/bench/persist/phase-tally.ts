import type { PhaseTimes } from "@atoll/protocol";
import type { Phases } from "../benchmark.ts";

/** Collects the phases of one operation after the other. A phase that one of them did not have took it no time. */
export class PhaseTally {
  #rounds: PhaseTimes[] = [];

  /** What is measured beyond the operation's own phases is one more phase, so that they still add up. */
  add(phases: PhaseTimes, totalMs: number, rest: string): void {
    const told = Object.values(phases).reduce((sum, ms) => sum + ms, 0);
    this.#rounds.push({ ...phases, [rest]: Math.max(0, totalMs - told) });
  }

  /** Of the last rounds only: what came before was to warm up. */
  last(count: number): Phases {
    const rounds = this.#rounds.slice(-count);
    const names = new Set(rounds.flatMap((round) => Object.keys(round)));
    return Object.fromEntries([...names].map((name) => [name, rounds.map((round) => round[name] ?? 0)]));
  }
}
