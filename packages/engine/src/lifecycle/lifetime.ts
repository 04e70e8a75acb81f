import type { SandboxEventMessage, SandboxRecord } from "@atoll/protocol";

/** Node cannot wait longer than this at once. */
const longestTimerMs = 2 ** 31 - 1;

/** Calls `onOver` at the end of the lifetime. Returns a function that cancels that. */
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

/** Returns the event that is emitted at the end of the lifetime. */
export function lifetimeEvent({ id, createdAtMs, limits }: SandboxRecord): SandboxEventMessage {
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
