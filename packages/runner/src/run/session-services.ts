import { KeyedLock } from "../cache/keyed-lock.ts";
import { SnapshotCache } from "../cache/snapshot-cache.ts";
import { TaskRecords } from "../cache/task-records.ts";
import { catalogue } from "../compat/catalogue.ts";
import { planEnvironment } from "../environments/plan-environment.ts";
import type { SessionServices } from "../session/session.ts";
import type { RunOptions } from "./run-options.ts";
import { labelsOf, type RunOwner } from "./run-owner.ts";

/** Returns what all sessions of a run share. */
export function servicesFor(
  options: RunOptions,
  owner: RunOwner,
  journal: Pick<SessionServices, "emit" | "sync">,
): SessionServices {
  const { client, directory, cacheDirectory, runId, repeat = 1 } = options;
  const seeds = options.seeds ?? [];
  // A second look at a failure needs seeds that were not used.
  const more = Array.from({ length: repeat + 3 }, (_, at) => at).filter((seed) => !seeds.includes(seed));
  return {
    client,
    directory,
    cacheDirectory,
    snapshots: client.snapshots === undefined ? undefined : new SnapshotCache(client.snapshots, cacheDirectory),
    records: new TaskRecords(cacheDirectory),
    locks: new KeyedLock(),
    useCache: options.useCache ?? true,
    labels: labelsOf(runId, owner),
    plan: options.plan ?? planEnvironment,
    catalogue: [...catalogue, ...(options.fixes ?? [])],
    seeds: [...seeds, ...more],
    repeat,
    quarantine: options.quarantine ?? [],
    ...journal,
  };
}
