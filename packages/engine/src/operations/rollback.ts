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
  /** Ends the processes that stand in the way of a checkpoint of what is left behind. */
  force?: boolean;
  /** The number of the checkpoint of what is left behind, as for a pause. */
  leftAs?: number;
  /**
   * What the caller keeps about that time can be made ready here. Nothing runs, and nothing was changed: a crash leaves
   * the sandbox paused where it was.
   */
  prepare?: () => Promise<void>;
  /**
   * Called when the sandbox runs as it was then, and every later server will find it so. Nobody pauses or forks it
   * before this is done. Whoever has streams of the memory that was left waits until `dropStreams` is called, and is
   * then told that they are over.
   */
  switched?: (dropStreams: () => void) => Promise<void>;
}

export interface RollbackResult extends ResumeResult {
  /** What was left behind, if it ran. */
  left?: number;
}

/**
 * Goes back to an earlier checkpoint, memory and files, in one turn. That checkpoint is verified first. A running
 * sandbox is then paused: what is left behind is a checkpoint too, and can be gone back to. One that has failed leaves
 * nothing behind. When it rejects, the sandbox is as it was, or paused there.
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
    // What it wrote since is given up, as that of a running one is not: there is no memory to save with it.
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
