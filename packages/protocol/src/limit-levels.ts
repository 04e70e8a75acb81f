import type { LimitName } from "./limits.ts";

/** The share of a limit at which it is near, and below which it is eased, unless a profile has another one. */
export const defaultSoftLimit = 0.8;

export interface LimitReading {
  used: number;
  allowed: number;
}

/** What changed about one limit. */
export type LimitChange = LimitReading & { limit: LimitName } & (
    | { type: "limit.near" }
    /** `consequence` says what happens then. */
    | { type: "limit.hit"; consequence: string }
    | { type: "limit.eased" }
  );

/** Decides when the limits of one sandbox or application are near, hit and eased, and reports each change once. */
export class LimitLevels {
  readonly #report: (change: LimitChange) => void;
  readonly #softLimit: () => number;
  readonly #reported = new Map<LimitName, "near" | "hit">();

  constructor(report: (change: LimitChange) => void, softLimit: () => number = () => defaultSoftLimit) {
    this.#report = report;
    this.#softLimit = softLimit;
  }

  /** Whether no limit is near or hit, by the reported changes. */
  get areAllFar(): boolean {
    return this.#reported.size === 0;
  }

  /**
   * Compares a reading with its limit: near or far, or hit with this consequence. A limit that was hit stays so until
   * it is far.
   */
  compare(limit: LimitName, reading: LimitReading, consequence?: string): void {
    if (consequence !== undefined) {
      if (this.#reported.get(limit) !== "hit") this.hit(limit, reading, consequence);
    } else if (reading.used < reading.allowed * this.#softLimit()) this.ease(limit, reading);
    else if (!this.#reported.has(limit)) {
      this.#reported.set(limit, "near");
      this.#report({ type: "limit.near", limit, ...reading });
    }
  }

  /** Reports a change at each call. */
  hit(limit: LimitName, reading: LimitReading, consequence: string): void {
    this.#reported.set(limit, "hit");
    this.#report({ type: "limit.hit", limit, ...reading, consequence });
  }

  /** Reports a change if the limit was near or hit. */
  ease(limit: LimitName, reading: LimitReading): void {
    if (this.#reported.delete(limit)) this.#report({ type: "limit.eased", limit, ...reading });
  }
}
