import { CheckpointStore } from "../checkpoints/checkpoint-store.ts";
import { standsOn } from "../checkpoints/dependents.ts";
import type { EngineContext } from "../engine-context.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { warn } from "../support/warn.ts";

/** Which checkpoints of a sandbox stay on this machine. */
export interface CheckpointPolicy {
  /** So many, the newest. */
  keepLast: number;
  /** And all that are not older than this. */
  keepForMs: number;
}

/**
 * Gives up the checkpoints that the policy does not keep; for work that has the turn. Never the one that the sandbox
 * stands on, nor one that copies are being made of. What fails is tried again with the next checkpoint: nobody's work
 * depends on it.
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

/** For a server that starts: the one before may have kept more, or died over it. */
export async function retireAllExpired(context: EngineContext): Promise<void> {
  const lives = [...context.lives.values()];
  await Promise.all(lives.map((life) => life.inTurn(() => retireExpired(context, life)).catch(warn)));
}

async function chooseExpired(context: EngineContext, life: SandboxLife, store: CheckpointStore): Promise<number[]> {
  const { policy, held } = context;
  const { record } = life;
  // One that has failed is left as it is: what survives is all that there is of it.
  if (policy === undefined || (record.state !== "running" && record.state !== "paused")) return [];
  if ((await store.numbers()).length <= policy.keepLast) return [];
  const current = standsOn(record);
  const oldestMs = Date.now() - policy.keepForMs;
  const isNeeded = (n: number): boolean => n === current || held.has(life.parts.layout.checkpoint(n).dir);
  const older = (await store.readAll()).slice(0, -policy.keepLast);
  return older.filter(({ n, createdAtMs }) => createdAtMs < oldestMs && !isNeeded(n)).map(({ n }) => n);
}
