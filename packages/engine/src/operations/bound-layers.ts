import { deadlineAfter, firstToAbort, type LayerPart } from "@atoll/protocol";
import { cheapestMerge } from "../checkpoints/bound-stack.ts";
import { layerId } from "../checkpoints/layer-library.ts";
import type { Pause } from "./pause-work.ts";

/** The time for layers of many gigabytes on a slow disk. */
const mergeDeadlineMs = 60 * 60_000;

/**
 * Returns the layers that the sandbox depends on, with room for one more on top. These layers do not change any more,
 * so two of them can be merged while memory is saved. A stack that cannot be merged is used as it is, for as long as it
 * can be mounted. Empty layers are left out.
 */
export async function boundStack(pause: Pause): Promise<LayerPart[]> {
  const { context, life, store, n, killed } = pause;
  const layers = await context.layers.withoutEmpty(pause.ground.layers);
  using signal = firstToAbort(killed, deadlineAfter(mergeDeadlineMs));
  const at = cheapestMerge(layers);
  const [upper, lower] = at === undefined ? [] : layers.slice(at, at + 2);
  if (at === undefined || upper === undefined || lower === undefined) return layers;
  const { trees } = life.parts.template;
  const frozen = context.layers.directories(layers.slice(at + 2), trees.length);
  const guestLayer = context.layout.guestLayer((await store.needsOf(n)).guest);
  const below = trees.map((tree, index) => [
    ...(frozen[index] ?? []),
    ...(index === 0 ? [guestLayer] : []),
    ...tree.lower,
  ]);
  const id = layerId(life.record.id, n, "merged");
  try {
    return layers.toSpliced(at, 2, await context.layers.merge(id, [upper, lower], below, signal));
  } catch {
    signal.throwIfAborted();
    await context.layers.discard(id);
    return layers;
  }
}

/** Removes the layer that `boundStack` has made, or is making, when no manifest names it. */
export async function discardMerged({ context, life, n }: Pause, below: Promise<LayerPart[]>): Promise<void> {
  await below.catch(() => undefined);
  await context.layers.discard(layerId(life.record.id, n, "merged"));
}
