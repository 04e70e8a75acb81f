import { allNeeded, type Manifest } from "./choose-expired.ts";

export interface CollectionState {
  /** All manifests. A manifest that cannot be read may need any object, so no plan must be made with one. */
  manifests: readonly Manifest[];
  /** The keys of all objects that may be collected, read before the manifests. */
  objects: readonly string[];
  /** By key, the time since when no manifest is known to need the object. */
  condemned: ReadonlyMap<string, number>;
  nowMs: number;
  /** More time than any writer takes from deciding to use an object until a manifest lists it. */
  graceMs: number;
}

export interface CollectionPlan {
  remove: string[];
  condemned: Map<string, number>;
}

/**
 * Returns the objects to remove, and those to remove later. An object is removed only when two passes with the grace
 * between them found that no manifest needs it: a writer that was about to use it during the first pass has published
 * its manifest by the second.
 */
export function planCollection(state: CollectionState): CollectionPlan {
  const manifestKeys = new Set(state.manifests.map(({ key }) => key));
  const needed = allNeeded(state.manifests, manifestKeys);
  const plan: CollectionPlan = { remove: [], condemned: new Map() };
  for (const key of state.objects) {
    if (needed.has(key)) continue;
    const sinceMs = state.condemned.get(key);
    if (sinceMs !== undefined && state.nowMs - sinceMs >= state.graceMs) plan.remove.push(key);
    // A time in the future comes from a wrong clock, so the grace starts again.
    plan.condemned.set(key, Math.min(sinceMs ?? state.nowMs, state.nowMs));
  }
  return plan;
}
