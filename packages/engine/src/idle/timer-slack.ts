/** What the processes inside a container have done since they were started. */
export interface RunTally {
  /** How often they had a processor. */
  runs: number;
  /** For how long they had one. */
  ms: number;
  /** For how long they waited for one, because others had them all. */
  waitMs: number;
}

/**
 * The timer slack of one container: by how much the kernel may delay its timers to wake it less often. Synchronous,
 * because a request waits for `remove`; each takes less than a millisecond. A container that is gone is no error. To be
 * disposed of after the last `remove`.
 */
export interface TimerSlack extends Disposable {
  /** If this process dies, the slack is removed by the container's launcher. */
  allow(ms: number): void;
  /** The kernel's ordinary slack again, for every thread that the container has. */
  remove(): void;
  /** Undefined: it cannot be told, or would take too long to find out. */
  readRuns(): RunTally | undefined;
}
