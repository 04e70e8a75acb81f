import { assertAccepts, firstToAbort, type PhaseTimes } from "@atoll/protocol";
import { filesOf, layerBytesOf, needsOf, withMemory, withSavedNodes } from "../checkpoints/launch-source.ts";
import { PhaseClock } from "../checkpoints/phase-clock.ts";
import { readCheckpoint, verifyParts } from "../checkpoints/verify-checkpoint.ts";
import type { EngineContext } from "../engine-context.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { removeTree } from "../store/remove-tree.ts";
import { newContainerId } from "../support/ids.ts";
import { settleAll } from "../support/settle-all.ts";
import { restart } from "./restart.ts";

export interface ResumeOptions {
  /** With false, the sandbox starts without its memory, from its files as they were saved. */
  memory?: boolean;
  signal?: AbortSignal;
  /**
   * The deadline as in `Sandbox.allowUntil`, in force from the first moment. By default the last one that this engine
   * has set.
   */
  allowUntil?: number;
}

export interface ResumeResult {
  /** The checkpoint that the sandbox depends on; absent for one that has failed and was never paused. */
  checkpoint?: number;
  phases: PhaseTimes;
  totalMs: number;
}

/** The target of a rollback. */
interface RollbackTarget {
  checkpoint: number;
  /**
   * Called when the sandbox runs from that checkpoint and this is stored. Users of streams of the earlier memory wait
   * until it calls `dropStreams`.
   */
  switched?: ((dropStreams: () => void) => Promise<void>) | undefined;
}

/**
 * Starts a sandbox that is paused or, without memory, one that has failed. When it rejects, the sandbox is as before
 * and nothing of it runs.
 */
export function resumeSandbox(
  context: EngineContext,
  life: SandboxLife,
  options: ResumeOptions = {},
): Promise<ResumeResult> {
  return life.inTurn((killed) =>
    options.memory === false && life.record.state === "failed"
      ? restart(context, life, options, killed)
      : resumeInTurn(context, life, options, killed),
  );
}

/** Resumes for an operation that has the sandbox's turn already. */
export async function resumeInTurn(
  context: EngineContext,
  life: SandboxLife,
  options: ResumeOptions & Partial<RollbackTarget>,
  killed: AbortSignal,
): Promise<ResumeResult> {
  options.signal?.throwIfAborted();
  assertAccepts(life.record, options.memory === false ? "restart" : "resume");
  const { keeper, layout } = life.parts;
  const { record } = life;
  if (record.state !== "paused") throw new Error(`A ${record.state} sandbox cannot be resumed`);
  const n = options.checkpoint ?? record.checkpoint;
  if (options.allowUntil !== undefined) await life.deadline.set(options.allowUntil);
  using signal = firstToAbort(options.signal, killed);
  const clock = new PhaseClock();
  const containerId = newContainerId();
  const step = (name: string): Promise<void> => context.atStep(`resume: ${name}`, record.id);
  const intent = keeper
    .apply("resume", (common) => ({ ...common, state: "resuming", checkpoint: n, containerId }))
    .then(() => step("intent"));
  // The error is thrown where this is awaited; this keeps it from being an unhandled rejection until then.
  intent.catch(() => undefined);
  try {
    const memory = options.memory ?? true;
    const manifest = await readCheckpoint(context, life, n, { memory });
    // Any files here were written during a resume that failed.
    await removeTree(layout.layersDir);
    const verified = verifyParts(context, life, manifest, { memory, signal }).then(() => {
      clock.lap("verify");
      return step("verified");
    });
    const files = filesOf(context, life, manifest);
    const source = memory
      ? withMemory(context, life, files, manifest.n, needsOf(manifest))
      : withSavedNodes(files, manifest);
    const moved = life.moveTo(containerId, source, {
      signal,
      mayStart: settleAll([intent, verified]).then(() => undefined),
      keepsStreams: memory && options.checkpoint === undefined,
      onLaunched: () => clock.lap("restore"),
    });
    const { ref } = await moved.catch(async (error: unknown) => {
      // A damaged part explains why the start failed.
      await verified;
      throw error;
    });
    clock.lap("firstAnswer");
    await step("answered");
    const { phases } = clock;
    await keeper.apply("started", (common) => ({ ...common, state: "running", container: ref, base: n }), { phases });
    life.live(layerBytesOf(manifest));
    await step("running");
    await options.switched?.(() => life.dropStreams());
    return { checkpoint: n, phases, totalMs: clock.totalMs };
  } catch (error) {
    await intent.catch(() => undefined);
    killed.throwIfAborted();
    if (life.record.state === "resuming") {
      const { checkpoint } = record;
      await life.leaveContainer();
      await keeper.apply("refused", (common) => ({ ...common, state: "paused", checkpoint }));
    }
    throw error;
  } finally {
    if (life.record.state === "running") life.dropStreams();
  }
}
