import type { SandboxEventMessage, SandboxRecord } from "@atoll/protocol";

/** Node cannot wait longer than this at once. */
const longestTimerMs = 2 ** 31 - 1;

/** Calls back when the lifetime is over, unless what is returned is called first. */
export function watchLifetime({ expiresAtMs }: Pick<SandboxRecord, "expiresAtMs">, onOver: () => void): () => void {
  if (expiresAtMs === undefined) return () => undefined;
  let timer: NodeJS.Timeout;
  const wait = (): void => {
    const leftMs = expiresAtMs - Date.now();
    timer = setTimeout(
      () => (Date.now() < expiresAtMs ? wait() : onOver()),
      Math.min(Math.max(0, leftMs), longestTimerMs),
    );
    timer.unref();
  };
  wait();
  return () => clearTimeout(timer);
}

/** What is told when it is over. */
export function lifetimeHit({ id, createdAtMs, limits }: SandboxRecord): SandboxEventMessage {
  const nowMs = Date.now();
  return {
    type: "limit.hit",
    sandboxId: id,
    atMs: nowMs,
    limit: "lifetime",
    used: nowMs - createdAtMs,
    allowed: limits.lifetimeMs ?? 0,
    consequence: "the sandbox is killed",
  };
}
