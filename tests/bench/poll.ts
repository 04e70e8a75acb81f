import { setTimeout as sleep } from "node:timers/promises";

const intervalMs = 50;

/** Polls until the condition holds. The caller limits the time by the signal. */
export async function pollUntil(isSo: () => Promise<boolean>, signal: AbortSignal): Promise<void> {
  while (!(await isSo())) await sleep(intervalMs, undefined, { signal });
}
