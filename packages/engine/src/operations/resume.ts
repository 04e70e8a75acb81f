import { assertAccepts, firstToAbort, type PhaseTimes } from "@atoll/protocol";
import { filesOf, frozenBytesOf, needsOf, withMemory, withSavedNodes } from "../checkpoints/launch-source.ts";
import { PhaseClock } from "../checkpoints/phase-clock.ts";
import { readCheckpoint, verifyParts } from "../checkpoints/verify-checkpoint.ts";
import type { EngineContext } from "../engine-context.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { removeTree } from "../store/remove-tree.ts";
import { newContainerId } from "../support/ids.ts";
import { settleAll } from "../support/settle-all.ts";
import { restart } from "./restart.ts";

export interface ResumeOptions {
  /** False: nothing of its memory is used, its files are as they were saved. */
  memory?: boolean;
  signal?: AbortSignal;
  /** As `Sandbox.allowUntil`, in force from its first moment. If not given, what was last set by this engine. */
  allowUntil?: number;
}

export interface ResumeResult {
  /** What it stands on; absent for one that has failed and was never paused. */
  checkpoint?: number;
  phases: PhaseTimes;
  totalMs: number;
}

/** For work that goes back to an earlier checkpoint. */
interface GoBack {
  checkpoint: number;
  /**
   * Called when it runs there and that is stored. Until it calls `dropStreams`, whoever has streams of the memory
   * before waits.
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

/** For work that has the turn already. */
export async function resumeInTurn(
  context: EngineContext,
  life: SandboxLife,
  options: ResumeOptions & Partial<GoBack>,
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
  // Told when we come to it, and not as unhandled before.
  intent.catch(() => undefined);
  try {
    const memory = options.memory ?? true;
    const manifest = await readCheckpoint(context, life, n, { memory });
    // Whatever is there was written by a resume that came to nothing.
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
      // What is wrong with the parts explains why it was not started with them.
      await verified;
      throw error;
    });
    clock.lap("firstAnswer");
    await step("answered");
    const { phases } = clock;
    await keeper.apply("started", (common) => ({ ...common, state: "running", container: ref, base: n }), { phases });
    life.live(frozenBytesOf(manifest));
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
