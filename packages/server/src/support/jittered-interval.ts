/**
 * Calls `work`, which handles its own errors, until it is stopped. The interval is `intervalMs` plus or minus half of
 * it, so that servers that started together drift apart. It keeps no process alive.
 */
export function jitteredInterval(intervalMs: number, work: () => Promise<void>): { stop: () => void } {
  let timer: NodeJS.Timeout | undefined;
  let isStopped = false;
  const plan = (): void => {
    if (isStopped) return;
    timer = setTimeout(() => void work().finally(plan), Math.round(intervalMs * (0.5 + Math.random())));
    timer.unref();
  };
  plan();
  return {
    stop: () => {
      isStopped = true;
      clearTimeout(timer);
    },
  };
}
