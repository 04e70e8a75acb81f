import { CheckpointStore } from "../checkpoints/checkpoint-store.ts";
import { currentCheckpoint } from "../checkpoints/current-checkpoint.ts";
import type { EngineContext } from "../engine-context.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { warn } from "../support/warn.ts";

/** The policy that says which checkpoints of a sandbox stay on this machine. */
export interface CheckpointPolicy {
  /** This many of the newest checkpoints stay. */
  keepLast: number;
  /** Checkpoints that are not older than this stay as well. */
  keepForMs: number;
}

/**
 * Retires the checkpoints that the policy does not keep, for an operation that has the sandbox's turn. Keeps the one
 * that the sandbox depends on, and those that are being forked. A failure is only logged: the next checkpoint tries
 * again.
 */
export async function retireExpired(context: EngineContext, life: SandboxLife): Promise<void> {
  try {
    const store = new CheckpointStore(life.parts.layout);
    await store.sweep();
    const expired = await chooseExpired(context, life, store);
    for (const n of expired) await store.retire(n);
    if (expired.length > 0) context.layers.collectSoon();
  } catch (error) {
    warn(error);
  }
}

/** Runs at the start of a server: the earlier one may have kept more, or died during the removal. */
export async function retireAllExpired(context: EngineContext): Promise<void> {
  const lives = [...context.lives.values()];
  await Promise.all(lives.map((life) => life.inTurn(() => retireExpired(context, life)).catch(warn)));
}

async function chooseExpired(context: EngineContext, life: SandboxLife, store: CheckpointStore): Promise<number[]> {
  const { policy, pinnedCheckpoints } = context;
  const { record } = life;
  // A failed sandbox stays as it is: its checkpoints are all that survives of it.
  if (policy === undefined || (record.state !== "running" && record.state !== "paused")) return [];
  if ((await store.numbers()).length <= policy.keepLast) return [];
  const current = currentCheckpoint(record);
  const oldestMs = Date.now() - policy.keepForMs;
  const isNeeded = (n: number): boolean => n === current || pinnedCheckpoints.has(life.parts.layout.checkpoint(n).dir);
  const older = (await store.readAll()).slice(0, -policy.keepLast);
  return older.filter(({ n, createdAtMs }) => createdAtMs < oldestMs && !isNeeded(n)).map(({ n }) => n);
}
