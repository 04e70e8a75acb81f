/**
 * Does `work`, which tells by itself what goes wrong, again and again until it is stopped: `intervalMs` apart, give or
 * take a half, so that servers which started together drift apart. It keeps no process alive.
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
