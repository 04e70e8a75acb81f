import { messageOf } from "@atoll/host";
import type { LayerPart } from "@atoll/protocol";
import { optionalBase } from "../checkpoints/current-checkpoint.ts";
import { filesOf, layerBytesOf, withMemory } from "../checkpoints/launch-source.ts";
import { layerId } from "../checkpoints/layer-library.ts";
import { newContainerId } from "../support/ids.ts";
import { discardMerged } from "./bound-layers.ts";
import { failPause, step, reportedEnded, type Pause } from "./pause-work.ts";

/**
 * Restores a sandbox whose memory and files were saved but could not be made into a checkpoint. Rejects with
 * `sandbox_ended`, saying what survives, if that fails.
 */
export async function restoreContainer(pause: Pause, because: unknown, below: Promise<LayerPart[]>): Promise<void> {
  const { context, life, store, n, parent, ground, killed } = pause;
  const { keeper, layout } = life.parts;
  try {
    // What is saved must not run twice.
    await life.leaveContainer();
    await store.unpublish(n);
    await discardMerged(pause, below);
    await context.layers.unseal(layerId(life.record.id, n), layout);
    const source = withMemory(context, life, filesOf(context, life, ground), n, await store.needsOf(n));
    await life.deadline.allowed(killed);
    const moved = await life.moveTo(newContainerId(), source, {
      signal: killed,
      // From now on the image is older than the files, so the next server must not make a checkpoint of the two.
      mayStart: store.invalidateMemory(n),
      keepsStreams: true,
      onLaunched: () => undefined,
    });
    await step(pause, "brought back");
    const base = parent?.n;
    const running = { state: "running" as const, container: moved.ref, ...optionalBase(base) };
    await keeper.apply("refused", (common) => ({ ...common, ...running }), reportedEnded(pause));
    life.live(layerBytesOf(ground));
    await store.remove(n);
  } catch (error) {
    killed.throwIfAborted();
    // The files that the sandbox wrote go back to where it writes, and a restart looks for them there.
    await context.layers.unseal(layerId(life.record.id, n), layout).catch(() => undefined);
    throw await failPause(pause, `it could not be paused (${messageOf(because)}) and could not be restored`, error);
  }
}
