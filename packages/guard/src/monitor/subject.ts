import type { HardLimitAction, LimitName, LimitReading } from "@atoll/protocol";

/** What a subject uses now. Counters may start again at 0, as after a resume. */
export interface Usage {
  memoryBytes: number;
  cpuMs: number;
  uptimeMs: number;
  /** Undefined until they were counted for the first time. */
  processes?: number | undefined;
  diskBytes: number;
  sentBytes: number;
  receivedBytes: number;
}

/** Limits that the sampler compares with each sample; absent ones are not compared. */
export interface SampledLimits {
  memoryBytes?: number | undefined;
  /** 1 is the time of one core. */
  cpus?: number | undefined;
  processes?: number | undefined;
  diskBytes?: number | undefined;
}

/** A sandbox or an application that is watched. */
export interface Subject {
  id: string;
  kind: "sandbox" | "app";
  /**
   * Returns what it uses now, or undefined while it does not run. It is called at every sample, also while the subject
   * is idle, and must not make it do anything.
   */
  read: () => Usage | undefined | Promise<Usage | undefined>;
  /** Limits that only the sampler watches. A subject that has a watch of its own reports changes with `report`. */
  limits?: SampledLimits | undefined;
  /** The share of each limit at which a warning comes. */
  softLimit?: number | undefined;
  /** Absent: a limit does only what it does itself. */
  onHardLimit?: HardLimitAction | undefined;
  /**
   * Does the action and resolves to what was done, in words; undefined if nothing was needed any more. Rejects when it
   * cannot be done.
   */
  enforce?: (action: HardLimitAction, violation: Violation) => Promise<string | undefined>;
  /** Ends a `throttle`, when all limits are far again. */
  relax?: () => Promise<void>;
}

/** A limit that a subject came near to (`soft`) or reached (`hard`). */
export interface Violation extends LimitReading {
  id: string;
  kind: Subject["kind"];
  level: "soft" | "hard";
  limit: LimitName;
  atMs: number;
  /** What the limit does by itself. */
  consequence?: string | undefined;
}

/** What was done about a violation. */
export interface Enforcement {
  violation: Violation;
  action: HardLimitAction;
  result: "done" | "failed";
  /** What was done, or why it could not be done. */
  because: string;
}
