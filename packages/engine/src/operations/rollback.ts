import { assertAccepts, SandboxError } from "@atoll/protocol";
import { CheckpointStore } from "../checkpoints/checkpoint-store.ts";
import type { EngineContext } from "../engine-context.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { pauseSandbox } from "./pause.ts";
import { resumeSandbox, type ResumeOptions, type ResumeResult } from "./resume.ts";

/**
 * Goes back to an earlier checkpoint, memory and files. A running sandbox is paused first, ending what cannot be saved: what is left behind is a checkpoint too, and can be gone
 * back to. When it rejects, the sandbox is paused where it was.
 */
export async function rollbackSandbox(
  context: EngineContext,
  life: SandboxLife,
  n: number,
  options: ResumeOptions = {},
): Promise<ResumeResult> {
  const { id } = life.record;
  assertAccepts(life.record, "roll back");
  const known = await new CheckpointStore(life.parts.layout).list();
  if (!known.some((checkpoint) => checkpoint.n === n)) {
    throw new SandboxError("not_found", `Cannot roll back sandbox ${id}: it has no checkpoint ${n}`, {
      suggestion: `It has ${known.map((checkpoint) => checkpoint.n).join(", ") || "none"}.`,
      details: { sandboxId: id, checkpoint: n },
    });
  }
  if (life.record.state === "running") {
    await pauseSandbox(context, life, {
      force: true,
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
  }
  return resumeSandbox(context, life, { ...options, checkpoint: n });
}
