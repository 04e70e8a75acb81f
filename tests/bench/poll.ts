import { setTimeout as sleep } from "node:timers/promises";

const intervalMs = 50;

/** Looks again and again until it is so; whoever calls sees to an end. */
export async function pollUntil(isSo: () => Promise<boolean>, signal: AbortSignal): Promise<void> {
  while (!(await isSo())) await sleep(intervalMs, undefined, { signal });
}
