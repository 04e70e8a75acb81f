import { firstToAbort } from "@atoll/protocol";
import { CheckpointStore } from "../checkpoints/checkpoint-store.ts";
import { optionalBase } from "../checkpoints/current-checkpoint.ts";
import { readFirstLayers } from "../checkpoints/first-layers.ts";
import { filesOf, layerBytesOf } from "../checkpoints/launch-source.ts";
import { PhaseClock } from "../checkpoints/phase-clock.ts";
import type { EngineContext } from "../engine-context.ts";
import { failedRestart } from "../lifecycle/failed-record.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { withNodes } from "../snapshots/nodes-in-layers.ts";
import { newContainerId } from "../support/ids.ts";
import type { ResumeOptions, ResumeResult } from "./resume.ts";

/**
 * Starts a failed sandbox from the files that it left, for an operation that has the sandbox's turn. The files are used
 * in place and never moved, so that they survive in any case. When it rejects, the sandbox has failed as before and
 * nothing of it runs.
 */
export async function restart(
  context: EngineContext,
  life: SandboxLife,
  options: ResumeOptions,
  killed: AbortSignal,
): Promise<ResumeResult> {
  options.signal?.throwIfAborted();
  const { keeper, layout } = life.parts;
  const { record } = life;
  if (record.state !== "failed") throw new Error(`A ${record.state} sandbox has not failed`);
  const { id, base, reason, endedAtMs, survives } = record;
  const failure = { reason, endedAtMs, survives };
  const step = (name: string): Promise<void> => context.atStep(`restart: ${name}`, id);
  if (options.allowUntil !== undefined) await life.deadline.set(options.allowUntil);
  using signal = firstToAbort(options.signal, killed);
  const clock = new PhaseClock();
  const ground =
    base === undefined ? { layers: await readFirstLayers(layout) } : await new CheckpointStore(layout).read(base);
  await context.layers.verify(ground.layers, signal);
  clock.lap("verify");
  const containerId = newContainerId();
  await keeper.apply("resume", (common) => ({
    ...common,
    state: "resuming",
    containerId,
    failure,
    ...optionalBase(base),
  }));
  try {
    await step("intent");
    const source = withNodes(context, life, filesOf(context, life, ground), signal);
    const onLaunched = (): void => clock.lap("restore");
    const { ref } = await life.moveTo(containerId, source, { signal, keepsStreams: false, onLaunched });
    clock.lap("firstAnswer");
    await step("answered");
    const { phases, totalMs } = clock;
    const running = { state: "running" as const, container: ref, ...optionalBase(base) };
    await keeper.apply("started", (common) => ({ ...common, ...running }), { phases });
    life.live(layerBytesOf(ground));
    return { ...(base === undefined ? {} : { checkpoint: base }), phases, totalMs };
  } catch (error) {
    killed.throwIfAborted();
    const { record: now } = life;
    if (now.state === "resuming" && "failure" in now) {
      await life.leaveContainer();
      await keeper.apply("fault", (common) => failedRestart(common, now));
    }
    throw error;
  } finally {
    life.dropStreams();
  }
}
