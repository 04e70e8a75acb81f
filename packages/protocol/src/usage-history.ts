import { z } from "zod";

/** What a sandbox or an application used at one moment. Counters count from its creation on this server. */
export const UsageSample = z.strictObject({
  atMs: z.int(),
  /** For how long it has been running since its creation or last resume. */
  uptimeMs: z.int(),
  memoryBytes: z.int(),
  /** CPU time of the present container, or process. */
  cpuMs: z.int(),
  /** The cores that were used on average since the sample before. */
  cpus: z.number(),
  /** Absent until they were counted for the first time. */
  processes: z.int().optional(),
  diskBytes: z.int(),
  /** Network bytes that left it and came to it, through its proxy to the outside and through its ports. */
  sentBytes: z.int(),
  receivedBytes: z.int(),
});
export type UsageSample = z.infer<typeof UsageSample>;

export const UsageHistory = z.strictObject({
  /** The time between two samples. */
  intervalMs: z.int(),
  /** How many samples are kept; older ones are forgotten. */
  kept: z.int(),
  /** The oldest first. There is none of a time in which it was paused. */
  samples: z.array(UsageSample),
});
export type UsageHistory = z.infer<typeof UsageHistory>;
