import {
  assertAccepts,
  deadlineAfter,
  SandboxError,
  type CheckpointManifest,
  type ContainerRef,
  type LayerPart,
  type PhaseTimes,
} from "@atoll/protocol";
import { CheckpointStore, lastCheckpoint } from "../checkpoints/checkpoint-store.ts";
import { readFirstLayers } from "../checkpoints/first-layers.ts";
import { endHolders, findHolders, unsaveable } from "../checkpoints/holders.ts";
import { filesOf, frozenBytesOf, withMemory } from "../checkpoints/launch-source.ts";
import { layerId } from "../checkpoints/layer-library.ts";
import { PhaseClock } from "../checkpoints/phase-clock.ts";
import { assertRoom } from "../checkpoints/room.ts";
import type { Freezer, Saver } from "../drivers/driver.ts";
import type { EngineContext } from "../engine-context.ts";
import type { FileHolder } from "../guest/messages.ts";
import { based } from "../lifecycle/based.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { newContainerId } from "../support/ids.ts";
import { settleAll } from "../support/settle-all.ts";
import { boundStack, discardMerged } from "./bound-layers.ts";
import { findNodePlaces, prepareGuest } from "./prepare-guest.ts";
import { retireExpired } from "./retire-checkpoints.ts";

/** Processes can open and delete files as fast as others are ended. */
const mostForcedRounds = 5;
const guestAnswerMs = 10_000;
const mostWakings = 2;
/** For a layer of many gigabytes on a slow disk. */
const sealDeadlineMs = 60 * 60_000;

export interface PauseOptions {
  /** Ends the processes that stand in the way. */
  force?: boolean;
  /** Until the sandbox is being paused; from then on the caller may leave and the work goes on. */
  signal?: AbortSignal;
  /** The number of the checkpoint, larger than any before; the next one if not given. */
  checkpoint?: number;
}

export interface PauseResult {
  checkpoint: number;
  phases: PhaseTimes;
  totalMs: number;
  /** The processes that `force` has ended. */
  ended: FileHolder[];
}

/** What one pause needs at every step. */
export interface Pause {
  context: EngineContext;
  life: SandboxLife;
  freezer: Freezer;
  store: CheckpointStore;
  container: ContainerRef;
  /** The checkpoint that is being made. */
  n: number;
  parent: CheckpointManifest | undefined;
  /** The layers under what it wrote: those of the parent, or what it began with. */
  ground: Pick<CheckpointManifest, "layers">;
  killed: AbortSignal;
  clock: PhaseClock;
}

/**
 * Saves a sandbox and ends its container. Rejects with `unsaveable`, the sandbox running as before, when something has no place in a checkpoint. If anything
 * fails later, the sandbox is brought back from what was just saved.
 */
export function pauseSandbox(
  context: EngineContext,
  life: SandboxLife,
  options: PauseOptions = {},
): Promise<PauseResult> {
  return life.inTurn(async (killed) => {
    const paused = await pauseInTurn(context, life, options, killed);
    await retireExpired(context, life);
    return paused;
  });
}

/** For work that has the turn already, and may need earlier checkpoints still: all of them stay. */
export async function pauseInTurn(
  context: EngineContext,
  life: SandboxLife,
  options: PauseOptions,
  killed: AbortSignal,
): Promise<PauseResult> {
  options.signal?.throwIfAborted();
  assertAccepts(life.record, "pause");
  const { keeper, layout, driver } = life.parts;
  const { record } = life;
  if (record.state !== "running") throw new Error(`A ${record.state} sandbox cannot be paused`);
  const { container, base } = record;
  if (driver.freezer === undefined) {
    throw new SandboxError(
      "unsupported",
      `Cannot pause sandbox ${record.id}: driver ${driver.name} cannot save memory`,
      {
        suggestion: "Create it with driver gvisor.",
      },
    );
  }
  const store = new CheckpointStore(layout);
  const parent = base === undefined ? undefined : await store.read(base);
  const ground = parent ?? { layers: await readFirstLayers(layout) };
  const n = await numberFor(store, options.checkpoint);
  const clock = new PhaseClock();
  const { freezer } = driver;
  const pause: Pause = { context, life, freezer, store, container, n, parent, ground, killed, clock };
  await using saver = freezer.saver(container, layout, layout.checkpoint(n));
  const prepared = prepare(pause, saver);
  prepared.catch(() => undefined);
  try {
    await keeper.apply("pause", (common) => ({
      ...common,
      state: "pausing",
      container,
      checkpoint: n,
      ...based(base),
    }));
  } catch (error) {
    await prepared.catch(() => undefined);
    await life.channel.greet(deadlineAfter(guestAnswerMs));
    life.live(frozenBytesOf(ground));
    throw error;
  }
  await step(pause, "intent");
  const ended = await freezeOrGoOn(pause, { force: options.force === true, prepared });
  const manifest = await save(pause, saver);
  const { phases, totalMs } = clock;
  return { checkpoint: manifest.n, phases, totalMs, ended };
}

async function numberFor(store: CheckpointStore, asked: number | undefined): Promise<number> {
  const next = await store.next();
  if (asked === undefined) return next;
  if (Number.isInteger(asked) && asked >= next && asked <= lastCheckpoint) return asked;
  throw new SandboxError("invalid_argument", `Cannot make checkpoint ${asked}: the next one is ${next}`, {
    details: { checkpoint: asked, next },
  });
}

/** Needs no intent on disk: the next greeting undoes it, whoever says it. */
async function prepare({ life, container }: Pause, saver: Saver): ReturnType<typeof prepareGuest> {
  const places = await findNodePlaces(life, container);
  life.stopMonitor();
  const prepared = prepareGuest(life, places);
  // While the guest is at work.
  saver.getReady();
  return prepared;
}

interface FreezeOptions {
  force: boolean;
  prepared: ReturnType<typeof prepareGuest>;
}

/** From here to `save` everything can be undone by waking it up. */
async function freezeOrGoOn(pause: Pause, options: FreezeOptions): Promise<FileHolder[]> {
  const { life, container, killed, clock } = pause;
  const { keeper } = life.parts;
  try {
    const nodes = await options.prepared;
    const [ended] = await settleAll([freeze(pause, options.force), begin(pause, nodes)]);
    // From here on it is saved or it ends: nothing in it runs any more.
    await life.deadline.suspend();
    clock.lap("freeze");
    return ended;
  } catch (error) {
    killed.throwIfAborted();
    try {
      await life.deadline.enforce();
      await wake(pause);
      const base = pause.parent?.n;
      await keeper.apply("refused", (common) => ({ ...common, state: "running", container, ...based(base) }));
    } catch (cause) {
      killed.throwIfAborted();
      await life.fail({ kind: "driver", message: `it does not wake up: ${messageOf(cause)}` });
      throw error;
    }
    life.live(frozenBytesOf(pause.ground));
    // Nothing is in it: one that stays is in nobody's way.
    await pause.store.remove(pause.n).catch(() => undefined);
    throw error;
  }
}

/** When its deadline has passed it is woken with the next one. */
async function wake({ life, freezer, container, killed }: Pause): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    await life.deadline.allowed(killed);
    try {
      await freezer.thaw(container, life.parts.layout);
      await life.channel.greet(deadlineAfter(guestAnswerMs));
      return;
    } catch (error) {
      killed.throwIfAborted();
      // A freeze that was given up on because the container stood still may have come after this.
      if (attempt >= mostWakings && !life.deadline.hasPassed) throw error;
    }
  }
}

async function begin(
  { life, freezer, store, container, n }: Pause,
  nodes: Pick<CheckpointManifest, "nodes">,
): Promise<void> {
  const needs = await freezer.findNeeds(container, life.parts.layout);
  await store.begin(n, { ...needs, ...nodes });
}

/** Its guest is prepared. */
async function freeze(pause: Pause, force: boolean): Promise<FileHolder[]> {
  const { life, freezer, container, killed } = pause;
  const { layout } = life.parts;
  const ended: FileHolder[] = [];
  for (let round = 0; ; round += 1) {
    if (round > 0) await life.channel.prepareCheckpoint(deadlineAfter(guestAnswerMs));
    await step(pause, "prepared");
    await freezer.freeze(container, layout);
    await step(pause, "frozen");
    const { unsaveable: files, memoryBytes } = await freezer.inspect(container, layout);
    killed.throwIfAborted();
    if (files.length === 0) {
      await assertRoom(layout.dir, memoryBytes);
      return ended;
    }
    await freezer.thaw(container, layout);
    await life.channel.greet(deadlineAfter(guestAnswerMs));
    const found = await findHolders(life.channel, files);
    if (!force || round === mostForcedRounds || found.processes.length === 0) throw unsaveable(life.record.id, found);
    await endHolders(life.channel, found);
    ended.push(...found.processes);
  }
}

async function save(pause: Pause, saver: Saver): Promise<CheckpointManifest> {
  const { life, store, n, killed, clock } = pause;
  const below = boundStack(pause);
  below.catch(() => undefined);
  try {
    await step(pause, "saving");
    await saver.save();
  } catch (error) {
    await discardMerged(pause, below);
    killed.throwIfAborted();
    const survives = "its files survive, and its earlier checkpoints";
    await life.fail({ kind: "driver", message: `its memory could not be saved: ${messageOf(error)}; ${survives}` });
    await store.remove(n);
    throw new SandboxError(
      "sandbox_ended",
      `Cannot pause sandbox ${life.record.id}: its memory could not be saved; ${survives}`,
      {
        cause: error,
        details: { survives: ["files", "checkpoints"] },
      },
    );
  }
  clock.lap("save");
  let stopped = Promise.resolve();
  try {
    await step(pause, "saved");
    // Before the disk is kept busy: it would wait behind that, and dying takes longer than the rest.
    await life.endContainer();
    stopped = life.leaveContainer();
    return await finishPause(pause, { stopped, below });
  } catch (error) {
    if (killed.aborted) {
      await discardMerged(pause, below);
      await pause.context.layers.discard(layerId(life.record.id, n));
    }
    killed.throwIfAborted();
    if (life.record.state === "paused") throw error;
    await stopped.catch(() => undefined);
    await bringBack(pause, error, below);
    throw error;
  }
}

/** Its memory is saved: makes the checkpoint of it while the container goes. `below` is what `boundStack` gives. */
export async function finishPause(
  pause: Pause,
  { stopped, below }: { stopped: Promise<void>; below: Promise<LayerPart[]> },
): Promise<CheckpointManifest> {
  const { context, life, freezer, store, n, parent, clock, killed } = pause;
  const { keeper, layout } = life.parts;
  const { id, driver, template } = life.record;
  const signal = AbortSignal.any([killed, deadlineAfter(sealDeadlineMs)]);
  const isStopped = stopped.then(() => step(pause, "stopped"));
  // Told when we come to it, and not as unhandled before.
  isStopped.catch(() => undefined);
  const [memory, own, owner, cpuFeatures, needs] = await settleAll([
    store.sealMemory(n),
    context.layers.freeze(layerId(id, n), layout, signal),
    store.sealOwner(n, context.packer, signal),
    context.readCpuFeatures(),
    store.needsOf(n),
  ]);
  await step(pause, "layer");
  const layers = [own, ...(await below)];
  clock.lap("layer");
  const manifest: CheckpointManifest = {
    version: 1,
    sandboxId: id,
    n,
    parent: parent?.n ?? null,
    createdAtMs: Date.now(),
    driver,
    template,
    guest: needs.guest,
    runtime: { version: freezer.version, platform: needs.platform },
    cpuFeatures,
    memory,
    layers,
    ...(owner === undefined ? {} : { owner }),
    ...(needs.nodes === undefined ? {} : { nodes: needs.nodes }),
    phases: clock.phases,
  };
  await step(pause, "sealed");
  await context.layers.publish([own, ...layers], () => store.publish(manifest));
  await step(pause, "manifest");
  await isStopped;
  await context.layers.trim(own.id);
  clock.lap("verify");
  const { phases } = clock;
  await keeper.apply("checkpointed", (common) => ({ ...common, state: "paused", checkpoint: n }), { phases });
  return manifest;
}

/** Its memory and its files are there, but no checkpoint could be made of them: it goes on. */
async function bringBack(pause: Pause, because: unknown, below: Promise<LayerPart[]>): Promise<void> {
  const { context, life, store, n, parent, ground, killed } = pause;
  const { keeper, layout } = life.parts;
  try {
    // What is saved must not run twice.
    await life.leaveContainer();
    await store.unpublish(n);
    await discardMerged(pause, below);
    await context.layers.thaw(layerId(life.record.id, n), layout);
    const source = withMemory(context, life, filesOf(context, life, ground), n, await store.needsOf(n));
    await life.deadline.allowed(killed);
    const moved = await life.moveTo(newContainerId(), source, {
      signal: killed,
      keepsStreams: true,
      onLaunched: () => undefined,
    });
    const base = parent?.n;
    await keeper.apply("refused", (common) => ({ ...common, state: "running", container: moved.ref, ...based(base) }));
    life.live(frozenBytesOf(ground));
    await store.remove(n);
  } catch (error) {
    killed.throwIfAborted();
    const survives = "its files survive, and its earlier checkpoints";
    const message = `it could not be paused (${messageOf(because)}) and not be brought back (${messageOf(error)}); ${survives}`;
    await life.fail({ kind: "driver", message });
  }
}

async function step({ context, life, killed }: Pause, name: string): Promise<void> {
  await context.atStep(`pause: ${name}`, life.record.id);
  killed.throwIfAborted();
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
