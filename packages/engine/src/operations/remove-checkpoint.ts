import { SandboxError } from "@atoll/protocol";
import { CheckpointStore } from "../checkpoints/checkpoint-store.ts";
import { currentCheckpoint } from "../checkpoints/current-checkpoint.ts";
import type { EngineContext } from "../engine-context.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";

/**
 * Removes a checkpoint, and what no other checkpoint needs. Returns true if it existed. Rejects with `in_use` for the
 * one that the sandbox depends on, or that is being forked.
 */
export function removeCheckpoint(context: EngineContext, life: SandboxLife, n: number): Promise<boolean> {
  return life.inTurn(async () => {
    const { id } = life.record;
    if (n === currentCheckpoint(life.record)) {
      throw new SandboxError("in_use", `Cannot remove checkpoint ${n}: sandbox ${id} depends on it`, {
        suggestion: "Pause the sandbox again, or roll it back to another one, then remove this one.",
        details: { sandboxId: id, checkpoint: n },
      });
    }
    if (context.pinnedCheckpoints.has(life.parts.layout.checkpoint(n).dir)) {
      throw new SandboxError("in_use", `Cannot remove checkpoint ${n}: copies of sandbox ${id} are being made of it`, {
        suggestion: "Wait until the fork is done, then remove it.",
        details: { sandboxId: id, checkpoint: n },
      });
    }
    const store = new CheckpointStore(life.parts.layout);
    if (!(await store.numbers()).includes(n)) return false;
    await store.retire(n);
    await context.layers.collect();
    return true;
  });
}
