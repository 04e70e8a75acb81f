/** Long enough for a machine that is busy with other tests. */
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

/** What a `lease-worker.ts` says. */
export interface LeaseFact {
  id: string;
  /**
   * By a clock that all processes of the machine share. For `wrote`: when the lease was asked, before anything was
   * sent.
   */
  atMs: number;
  step: string;
  epoch?: number;
  value?: number;
  origin?: string;
  reason?: string;
}
