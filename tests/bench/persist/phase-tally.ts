import type { PhaseTimes } from "@atoll/protocol";
import type { Phases } from "../benchmark.ts";

/** Collects the phases of repeated operations. A phase that one operation did not have counts as 0 ms. */
export class PhaseTally {
  #rounds: PhaseTimes[] = [];

  /** Adds one operation. The time that its phases do not cover becomes the phase `rest`, so that all phases add up. */
  add(phases: PhaseTimes, totalMs: number, rest: string): void {
    const reported = Object.values(phases).reduce((sum, ms) => sum + ms, 0);
    this.#rounds.push({ ...phases, [rest]: Math.max(0, totalMs - reported) });
  }

  /** Returns the phases of the last `count` operations; the ones before were for warming up. */
  last(count: number): Phases {
    const rounds = this.#rounds.slice(-count);
    const names = new Set(rounds.flatMap((round) => Object.keys(round)));
    return Object.fromEntries([...names].map((name) => [name, rounds.map((round) => round[name] ?? 0)]));
  }
}
