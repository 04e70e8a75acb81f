/** The activity of the processes inside a container since they were started. */
export interface RunTally {
  /** How often they got a processor. */
  runs: number;
  /** The time for which they ran. */
  ms: number;
  /** The time for which they waited for a processor. */
  waitMs: number;
}

/**
 * The timer slack of one container: by how much the kernel may delay its timers to wake it less often. Synchronous,
 * because a request waits for `remove`; each call takes less than a millisecond. A container that is gone is no error.
 * Must be disposed of after the last `remove`.
 */
export interface TimerSlack extends Disposable {
  /** Sets the slack. If this process dies, the container's launcher removes the slack. */
  allow(ms: number): void;
  /** Gives every thread of the container the kernel's default slack again. */
  remove(): void;
  /** Returns undefined if the activity is unknown, or would take too long to find out. */
  readRuns(): RunTally | undefined;
}
