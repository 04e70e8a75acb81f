import { readdir, rm } from "node:fs/promises";
import { Cleanup, hasErrno } from "@atoll/host";
import { ContainerId, SandboxError, type SandboxId, type SandboxRecord } from "@atoll/protocol";
import { CheckpointStore } from "../checkpoints/checkpoint-store.ts";
import { readFirstLayers } from "../checkpoints/first-layers.ts";
import { layerBytesOf } from "../checkpoints/launch-source.ts";
import type { Driver } from "../drivers/driver.ts";
import { MissingDriver } from "../drivers/missing-driver.ts";
import type { EngineContext } from "../engine-context.ts";
import type { EgressHandler } from "../guest/egress-relay.ts";
import { thawMarked } from "../snapshots/while-frozen.ts";
import { SandboxLayout } from "../store/layout.ts";
import { removeTree } from "../store/remove-tree.ts";
import type { Template } from "../templates/template.ts";
import { failedRestart } from "./failed-record.ts";
import { RecordKeeper } from "./record-keeper.ts";
import { repairPause } from "./repair-pause.ts";
import { repairPlan } from "./repair-plan.ts";
import type { SandboxLife } from "./sandbox-life.ts";
import { findStrayGroups, findStrayLaunchers, findStrayMounts, type Stray } from "./strays.ts";

/**
 * The server does not wait longer than this for running sandboxes to answer; one that answers later is served from then
 * on.
 */
const adoptWaitMs = 3_000;

/** What was found at start and what was done about it, one line each. */
export interface Repair {
  /** A sandbox, a directory, a cgroup, a mount or a process. */
  what: string;
  done: "adopted" | "kept" | "removed" | "failed" | "reported";
  because: string;
}

export interface ReconcileOptions {
  onEgress?: ((sandboxId: SandboxId) => EgressHandler | undefined) | undefined;
}

/**
 * Repairs a data directory after an earlier server, however that ended: running sandboxes are adopted, interrupted
 * operations are finished or undone, and what belongs to no sandbox is removed. What may be a user's files is only
 * reported, never removed on suspicion, and so is what cannot be removed. When this rejects, it holds no sandbox.
 */
export async function reconcile(context: EngineContext, options: ReconcileOptions = {}): Promise<Repair[]> {
  await using undo = new Cleanup();
  undo.defer(() => {
    for (const life of context.lives.values()) life.detach();
  });
  const { records, unreadable, ownerless } = await context.store.load();
  const repairs: Repair[] = unreadable.map(({ dir, because }) => ({ what: dir, done: "reported", because }));
  // Mounts come first, because a directory with a mount in it cannot be removed.
  for (const mount of await findStrayMounts(context.layout)) repairs.push(await removeStray(mount));
  const repaired = await Promise.all(records.map((record) => repairOne(context, record, options)));
  const removed = await Promise.all(ownerless.map((id) => removeOwnerless(context, id)));
  repairs.push(...repaired, ...removed);
  const isLeft = (repair: Repair | undefined): boolean => repair?.done === "reported";
  const untouched = [
    ...unreadable.map(({ dir }) => new SandboxLayout(dir)),
    ...records.filter((_, index) => isLeft(repaired[index])).map(({ id }) => context.layout.sandbox(id)),
    ...ownerless.filter((_, index) => isLeft(removed[index])).map((id) => context.layout.sandbox(id)),
  ];
  const spared = await Promise.all(untouched.map(runNames));
  repairs.push(...(await removeStrays(context, spared.flat())), ...(await collectLayers(context)));
  for (const life of context.lives.values()) if (life.record.state === "paused") life.watchLifetime();
  undo.release();
  return repairs;
}

/** One thing that cannot be repaired is reported and must not keep the server from starting. */
async function reportFailure(what: string, repair: () => Promise<Repair>): Promise<Repair> {
  try {
    return await repair();
  } catch (error) {
    return reported(what, error);
  }
}

function reported(what: string, error: unknown): Repair {
  return { what, done: "reported", because: error instanceof Error ? error.message : String(error) };
}

function repairOne(context: EngineContext, record: SandboxRecord, options: ReconcileOptions): Promise<Repair> {
  return reportFailure(`sandbox ${record.id}`, () => executePlan(context, record, options));
}

function removeOwnerless(context: EngineContext, id: SandboxId): Promise<Repair> {
  const what = `sandbox ${id}`;
  return reportFailure(what, async () => {
    await removeContainers(context, id, undefined);
    await context.store.remove(id);
    const because = "it has no record: its creation never began, or its removal was all but done";
    return { what, done: "removed", because };
  });
}

function removeStray({ what, remove }: Stray): Promise<Repair> {
  return reportFailure(what, async () => {
    await remove();
    return { what, done: "removed", because: "it belongs to no living sandbox" };
  });
}

async function collectLayers({ layers, layout }: EngineContext): Promise<Repair[]> {
  try {
    const names = await layers.collect();
    return names.map((name) => ({ what: `layer ${name}`, done: "removed", because: "no checkpoint needs it" }));
  } catch (error) {
    return [reported(layout.sealedDir, error)];
  }
}

async function executePlan(context: EngineContext, record: SandboxRecord, options: ReconcileOptions): Promise<Repair> {
  const plan = repairPlan(record);
  const what = `sandbox ${record.id}`;
  const keeper = new RecordKeeper(record, context.store, context.events.emit);
  const life = await revive(context, keeper, options);
  switch (plan.do) {
    case "adopt":
      return adoptOrFail(context, life, record, plan.because);
    case "settle pause":
      if (record.state !== "pausing") throw new Error(`A ${record.state} sandbox was not being paused`);
      // What was saved is not thrown away because this machine cannot read it.
      if (life.parts.driver instanceof MissingDriver) throw life.parts.driver.because;
      return settlePause(context, life, record, plan.because);
    case "finish kill":
    case "discard":
      await removeContainers(context, record.id, undefined);
      if (record.state === "killed" || record.state === "released") await context.store.remove(record.id);
      else await life.kill({ kind: "server", message: plan.because });
      context.lives.delete(record.id);
      return { what, done: "removed", because: plan.because };
    case "back to paused":
      if (record.state !== "resuming" || "failure" in record)
        throw new Error(`A ${record.state} sandbox was not resumed from a checkpoint`);
      await removeContainers(context, record.id, undefined);
      // What the sandbox wrote since is not part of what was saved, and no client has seen it running.
      await removeTree(context.layout.sandbox(record.id).layersDir);
      await keeper.apply("refused", (common) => ({ ...common, state: "paused", checkpoint: record.checkpoint }));
      return { what, done: "kept", because: plan.because };
    case "back to failed":
      if (record.state !== "resuming" || !("failure" in record))
        throw new Error(`A ${record.state} sandbox was not being restarted`);
      await removeContainers(context, record.id, undefined);
      await keeper.apply("fault", (common) => failedRestart(common, record));
      return { what, done: "kept", because: plan.because };
    case "keep":
      await removeContainers(context, record.id, undefined);
      return { what, done: "kept", because: plan.because };
  }
}

async function settlePause(
  context: EngineContext,
  life: SandboxLife,
  record: SandboxRecord & { state: "pausing" },
  because: string,
): Promise<Repair> {
  const what = `sandbox ${record.id}`;
  const outcome = await repairPause(context, life, record, () => removeContainers(context, record.id, undefined));
  switch (outcome) {
    case "paused":
      return { what, done: "kept", because };
    case "not begun":
      return adoptOrFail(context, life, record, because);
    case "lost": {
      const message = "the server stopped while its memory was being saved, and that was not completed";
      await life.fail({ kind: "server", message });
      await removeContainers(context, record.id, undefined);
      return { what, done: "failed", because: message };
    }
  }
}

async function revive(context: EngineContext, keeper: RecordKeeper, options: ReconcileOptions): Promise<SandboxLife> {
  const { id } = keeper.record;
  return context.addLife(keeper, { ...(await partsOf(context, keeper.record)), onEgress: options.onEgress?.(id) });
}

/** Without its driver or its template a sandbox cannot be started again; what it has can still be used and removed. */
async function partsOf(
  context: EngineContext,
  { id, driver, template }: SandboxRecord,
): Promise<{ driver: Driver; template: Template }> {
  try {
    return { driver: context.driver(driver), template: await context.templates.get(template) };
  } catch (error) {
    if (!(error instanceof SandboxError)) throw error;
    // The template gets as many trees as the sandbox has layers of its own, which is all that is needed here.
    const layers = await namesIn(context.layout.sandbox(id).layersDir);
    const trees = layers.map(() => ({ at: "/", lower: [] }));
    return { driver: new MissingDriver(driver, context.runs, error), template: { name: template, trees } };
  }
}

async function adoptOrFail(
  context: EngineContext,
  life: SandboxLife,
  record: SandboxRecord,
  because: string,
): Promise<Repair> {
  const what = `sandbox ${record.id}`;
  let problem = "its container is gone";
  try {
    if (await life.findContainer()) {
      await removeContainers(context, record.id, "container" in record ? record.container.id : undefined);
      if (!life.deadline.hasPassed) {
        if ("container" in record) await thawMarked(life, record.container);
        const onReached = async (): Promise<void> => life.live(await layerBytes(context, life.record));
        const isReached = await life.takeOver({ withinMs: adoptWaitMs, onReached });
        const silent = "its guest does not answer yet: requests are refused until it does";
        return { what, done: "adopted", because: isReached ? because : silent };
      }
    }
  } catch (error) {
    problem = error instanceof Error ? error.message : String(error);
  }
  if (life.deadline.hasPassed) {
    life.deadline.postpone(() =>
      life.inTurn(async () => {
        await adoptOrFail(context, life, life.record, because);
      }),
    );
    return { what, done: "kept", because: "it is frozen: the time until which it may run is over" };
  }
  await life.fail({ kind: "server", message: `${problem}; it was last seen by a server that has stopped` });
  await removeContainers(context, record.id, undefined);
  return { what, done: "failed", because: problem };
}

async function layerBytes(context: EngineContext, record: SandboxRecord): Promise<number> {
  if (record.state !== "running") return 0;
  const layout = context.layout.sandbox(record.id);
  if (record.base === undefined) return layerBytesOf({ layers: await readFirstLayers(layout) });
  return layerBytesOf(await new CheckpointStore(layout).read(record.base));
}

/** Removes every container that ever ran for the sandbox, except one. */
async function removeContainers(context: EngineContext, id: SandboxId, living: ContainerId | undefined): Promise<void> {
  const layout = context.layout.sandbox(id);
  for (const name of await runNames(layout)) {
    const containerId = ContainerId.safeParse(name);
    if (!containerId.success) await rm(`${layout.runsDir}/${name}`, { recursive: true, force: true });
    else if (containerId.data !== living) await context.runs.remove(containerId.data, layout);
  }
}

/** Returns the containers that ran for a sandbox and were not removed. */
function runNames({ runsDir }: SandboxLayout): Promise<string[]> {
  return namesIn(runsDir);
}

async function namesIn(directory: string): Promise<string[]> {
  try {
    return await readdir(directory);
  } catch (error) {
    if (hasErrno(error, "ENOENT", "ENOTDIR")) return [];
    throw error;
  }
}

/**
 * Removes what is left on the host with our mark and belongs neither to a living sandbox nor to one of the `spared`
 * containers.
 */
async function removeStrays({ cgroups, layout, lives }: EngineContext, spared: readonly string[]): Promise<Repair[]> {
  const living = new Set(spared);
  for (const { record } of lives.values()) {
    if ("container" in record) living.add(record.container.id);
  }
  const groups = await Promise.all((await findStrayGroups(cgroups, layout, living)).map(removeStray));
  const launchers = await Promise.all((await findStrayLaunchers(layout, living)).map(removeStray));
  return [...groups, ...launchers];
}
