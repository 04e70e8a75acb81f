import { currentCheckpoint, type Engine } from "@atoll/engine";
import type { ManagedSandbox } from "./managed-sandbox.ts";

/**
 * Returns how long a sandbox has run in total, or `undefined` if its profile does not limit that. The time in which it
 * was paused does not count; a paused sandbox ran until its checkpoint was made, whichever server made it.
 */
export async function ranMsOf(
  { sandbox, facts }: Pick<ManagedSandbox, "sandbox" | "facts">,
  engine: Pick<Engine, "checkpoints">,
): Promise<number | undefined> {
  if (facts.profile?.limits.runTimeMs === undefined) return undefined;
  const { record } = sandbox;
  let endedAtMs = Date.now();
  if (record.state === "failed") ({ endedAtMs } = record);
  else if (record.state !== "running") {
    const current = currentCheckpoint(record);
    const checkpoint = (await engine.checkpoints(sandbox.id)).find(({ n }) => n === current);
    endedAtMs = checkpoint?.createdAtMs ?? endedAtMs;
  }
  const startedAtMs = facts.resumedAtMs ?? facts.createdAtMs;
  return (facts.ranMs ?? 0) + Math.max(0, endedAtMs - startedAtMs);
}
