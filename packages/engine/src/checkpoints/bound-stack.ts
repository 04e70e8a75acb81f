import type { LayerPart } from "@atoll/protocol";

/**
 * Every layer makes each look-up of a file that is not there a little slower, and the kernel takes only so many
 * characters of layers in one mount.
 */
const deepestStack = 8;

/**
 * Where two layers of a stack, the topmost first, are merged with the least to copy, so that there is room for one
 * more: the index of the upper one. Undefined: there is room. Large layers below stay where they are, so that a small
 * change to a large sandbox stays cheap.
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
