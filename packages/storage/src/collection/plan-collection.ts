import { allNeeded, type Manifest } from "./choose-expired.ts";

export interface CollectionState {
  /**
   * Every manifest that there is. One that cannot be read may need anything: with one of those no plan must be made.
   */
  manifests: readonly Manifest[];
  /** The keys of all objects that may be collected, read before the manifests. */
  objects: readonly string[];
  /** Since when an object has been known to be needed by nobody. */
  condemned: ReadonlyMap<string, number>;
  nowMs: number;
  /** Longer than anybody takes from deciding to use an object until a manifest says so. */
  graceMs: number;
}

export interface CollectionPlan {
  remove: string[];
  condemned: Map<string, number>;
}

/**
 * What may be removed, and what is on its way to that. An object goes only when it has been needed by nobody at two
 * looks with the grace between them: somebody who was about to need it when it was first looked at has said so by the
 * second look.
 */
export function planCollection(state: CollectionState): CollectionPlan {
  const manifestKeys = new Set(state.manifests.map(({ key }) => key));
  const needed = allNeeded(state.manifests, manifestKeys);
  const plan: CollectionPlan = { remove: [], condemned: new Map() };
  for (const key of state.objects) {
    if (needed.has(key)) continue;
    const sinceMs = state.condemned.get(key);
    if (sinceMs !== undefined && state.nowMs - sinceMs >= state.graceMs) plan.remove.push(key);
    // A time in the future is of a clock that was wrong: the grace begins anew.
    plan.condemned.set(key, Math.min(sinceMs ?? state.nowMs, state.nowMs));
  }
  return plan;
}
