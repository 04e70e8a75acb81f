import { assertAccepts, firstToAbort, SandboxError } from "@atoll/protocol";
import { CheckpointStore } from "../checkpoints/checkpoint-store.ts";
import { addUp, PhaseClock } from "../checkpoints/phase-clock.ts";
import { verifyCheckpoint } from "../checkpoints/verify-checkpoint.ts";
import type { EngineContext } from "../engine-context.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { pauseInTurn, type PauseResult } from "./pause.ts";
import { resumeInTurn, type ResumeOptions, type ResumeResult } from "./resume.ts";
import { retireExpired } from "./retire-checkpoints.ts";

export interface RollbackOptions extends ResumeOptions {
  /** Ends the processes that prevent a checkpoint of the present state. */
  force?: boolean;
  /** The number of the checkpoint of the present state, as for a pause. */
  leftAs?: number;
  /**
   * Called before anything has changed, with nothing running: the caller can prepare what it keeps about the earlier
   * checkpoint. After a crash the sandbox is paused at its present state.
   */
  prepare?: () => Promise<void>;
  /**
   * Called when the sandbox runs from the earlier checkpoint, and every later server will find it so. It is not paused
   * or forked before this has settled. Users of streams of the memory that was left wait until `dropStreams` is called,
   * and then get an error.
   */
  switched?: (dropStreams: () => void) => Promise<void>;
}

export interface RollbackResult extends ResumeResult {
  /** The checkpoint of the state that was left, if the sandbox was running. */
  left?: number;
}

/**
 * Returns a sandbox to an earlier checkpoint, memory and files, in one turn. That checkpoint is verified first. Then a
 * running sandbox is paused: its state becomes a checkpoint too, for a later rollback. For a failed one no checkpoint
 * is made. When it rejects, the sandbox is as it was, or paused at its present state.
 */
export function rollbackSandbox(
  context: EngineContext,
  life: SandboxLife,
  n: number,
  options: RollbackOptions = {},
): Promise<RollbackResult> {
  return life.inTurn(async (killed) => {
    const { id } = life.record;
    const { force = false, leftAs, prepare, ...resume } = options;
    const step = (name: string): Promise<void> => context.atStep(`rollback: ${name}`, id);
    assertAccepts(life.record, "roll back");
    const before = new PhaseClock();
    await assertKnown(life, n);
    using signal = firstToAbort(options.signal, killed);
    const manifest = await verifyCheckpoint(context, life, n, { memory: options.memory ?? true, signal });
    await new CheckpointStore(life.parts.layout).verifyOwner(manifest);
    before.lap("verify");
    let left: PauseResult | undefined;
    if (life.record.state === "running") {
      const given = options.signal === undefined ? {} : { signal: options.signal };
      const number = leftAs === undefined ? {} : { checkpoint: leftAs };
      left = await pauseInTurn(context, life, { force, ...given, ...number }, killed);
    }
    await step("paused");
    const between = new PhaseClock();
    await prepare?.();
    await step("prepared");
    between.lap("caller");
    // The files that a failed sandbox wrote since are lost, unlike those of a running one: it has no memory to save
    // with them.
    if (life.record.state === "failed")
      await life.parts.keeper.apply("recover", (common) => ({ ...common, state: "paused", checkpoint: n }));
    const resumed = await resumeInTurn(context, life, { ...resume, checkpoint: n }, killed);
    await step("switched");
    await retireExpired(context, life);
    const parts = [before, ...(left === undefined ? [] : [left]), between, resumed];
    return { ...resumed, ...addUp(parts), ...(left === undefined ? {} : { left: left.checkpoint }) };
  });
}

async function assertKnown(life: SandboxLife, n: number): Promise<void> {
  const { id } = life.record;
  const known = await new CheckpointStore(life.parts.layout).list();
  if (known.some((checkpoint) => checkpoint.n === n)) return;
  throw new SandboxError("not_found", `Cannot roll back sandbox ${id}: it has no checkpoint ${n}`, {
    suggestion: `It has ${known.map((checkpoint) => checkpoint.n).join(", ") || "none"}.`,
    details: { sandboxId: id, checkpoint: n },
  });
}
