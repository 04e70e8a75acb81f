import type { LayerPart } from "@atoll/protocol";

/**
 * Every layer makes each look-up of a missing file a little slower, and the kernel limits the length of the mount
 * options that list the layers.
 */
const deepestStack = 8;

/**
 * Returns which two adjacent layers of a stack (the topmost first) to merge with the least to copy, so that there is
 * room for one more: the index of the upper one. Returns undefined if there is room already. Large layers at the bottom
 * stay as they are, so that a small change to a large sandbox stays cheap.
 */
export function cheapestMerge(layers: readonly Pick<LayerPart, "sizeBytes">[]): number | undefined {
  if (layers.length < deepestStack) return undefined;
  let cheapest = 0;
  let leastBytes = Infinity;
  for (const [index, layer] of layers.slice(0, -1).entries()) {
    const bytes = layer.sizeBytes + (layers[index + 1]?.sizeBytes ?? 0);
    if (bytes >= leastBytes) continue;
    leastBytes = bytes;
    cheapest = index;
  }
  return cheapest;
}
