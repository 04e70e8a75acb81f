/** Times that are long enough for a machine that is busy with other tests. */
export const leaseWorkerTiming = {
  ttlMs: 3000,
  stopMs: 600,
  renewMs: 300,
  callMs: 1000,
  watchMs: 50,
  retryMs: 50,
  pollMs: 50,
  waiterTtlMs: 3000,
};

/** A fact that a `lease-worker.ts` prints. */
export interface LeaseFact {
  id: string;
  /**
   * The time by a clock that all processes of the machine share. For `wrote`, it is the time at which the worker
   * checked its lease, before it sent anything.
   */
  atMs: number;
  step: string;
  epoch?: number;
  value?: number;
  origin?: string;
  reason?: string;
}
