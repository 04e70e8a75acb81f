import {
  assertAccepts,
  deadlineAfter,
  firstToAbort,
  SandboxError,
  type CheckpointManifest,
  type LayerPart,
  type PhaseTimes,
} from "@atoll/protocol";
import { CheckpointStore, lastCheckpoint } from "../checkpoints/checkpoint-store.ts";
import { optionalBase } from "../checkpoints/current-checkpoint.ts";
import { reportEnded } from "../checkpoints/deleted-file-users.ts";
import { layerBytesOf } from "../checkpoints/launch-source.ts";
import { layerId } from "../checkpoints/layer-library.ts";
import type { Saver } from "../drivers/driver.ts";
import type { EngineContext } from "../engine-context.ts";
import type { DeletedFileUser } from "../guest/messages.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { settleAll } from "../support/settle-all.ts";
import { boundStack, discardMerged } from "./bound-layers.ts";
import { freezeOrThaw } from "./freeze-or-thaw.ts";
import { answerDeadline, failPause, newPause, step, reportedEnded, type Pause } from "./pause-work.ts";
import { findNodePlaces, prepareGuest } from "./prepare-guest.ts";
import { restoreContainer } from "./restore-container.ts";
import { retireExpired } from "./retire-checkpoints.ts";

/** The time for a layer of many gigabytes on a slow disk. */
const sealDeadlineMs = 60 * 60_000;

export interface PauseOptions {
  /** Ends the processes that prevent a checkpoint. */
  force?: boolean;
  /** The caller may cancel until the sandbox is `pausing`; after that the pause continues. */
  signal?: AbortSignal;
  /** The number of the checkpoint, larger than any before; by default the next one. */
  checkpoint?: number;
}

export interface PauseResult {
  checkpoint: number;
  phases: PhaseTimes;
  totalMs: number;
  /** The processes that `force` has ended. */
  ended: DeletedFileUser[];
}

/**
 * Saves a sandbox and ends its container. Rejects with `unsaveable`, with the sandbox running as before, when something
 * cannot be saved in a checkpoint. If anything fails later, the sandbox is restored from what was just saved.
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

/**
 * Pauses for an operation that has the sandbox's turn already. All earlier checkpoints stay, because the operation may
 * need them.
 */
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
  // A silent guest would not answer, and the sandbox would be stopped until that is noticed.
  if (life.silence !== undefined) throw life.silence;
  const store = new CheckpointStore(layout);
  const n = await numberFor(store, options.checkpoint);
  const { freezer } = driver;
  const pause = await newPause({ context, life, freezer, store, container, n, killed }, base);
  const { ground, clock } = pause;
  await using saver = freezer.saver(container, layout, layout.checkpoint(n));
  const prepared = prepare(pause, saver);
  prepared.catch(() => undefined);
  try {
    await keeper.apply("pause", (common) => ({
      ...common,
      state: "pausing",
      container,
      checkpoint: n,
      ...optionalBase(base),
    }));
  } catch (error) {
    await prepared.catch(() => undefined);
    killed.throwIfAborted();
    // A guest that does not answer now does later: the greeting waits for it.
    await life.channel.greet(answerDeadline()).catch(() => undefined);
    life.live(layerBytesOf(ground));
    throw error;
  }
  await step(pause, "intent");
  const { ended } = pause;
  try {
    await freezeOrThaw(pause, { force: options.force === true, prepared });
    const manifest = await save(pause, saver);
    const { phases, totalMs } = clock;
    return { checkpoint: manifest.n, phases, totalMs, ended };
  } catch (error) {
    throw reportEnded(error, ended);
  }
}

async function numberFor(store: CheckpointStore, asked: number | undefined): Promise<number> {
  const next = await store.next();
  if (asked === undefined) return next;
  if (Number.isInteger(asked) && asked >= next && asked <= lastCheckpoint) return asked;
  throw new SandboxError("invalid_argument", `Cannot make checkpoint ${asked}: the next one is ${next}`, {
    details: { checkpoint: asked, next },
  });
}

/** Prepares the guest. This needs no intent on disk: the next greeting, from any server, undoes it. */
async function prepare({ life, container }: Pause, saver: Saver): ReturnType<typeof prepareGuest> {
  const places = await findNodePlaces(life, container);
  // The guest is about to be prepared, so the monitor must not ask it anything.
  life.stopMonitor();
  const prepared = prepareGuest(life, places);
  // This runs while the guest works.
  saver.getReady();
  return prepared;
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
    const failure = await failPause(pause, "its memory could not be saved", error);
    await store.remove(n);
    throw failure;
  }
  clock.lap("save");
  let stopped = Promise.resolve();
  try {
    await step(pause, "saved");
    // The container ends before the disk becomes busy, because its end would wait behind the writes, and takes longer
    // than the rest.
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
    await restoreContainer(pause, error, below);
    throw error;
  }
}

/**
 * Makes the checkpoint of a sandbox whose memory is saved, while its container is removed. `below` is the result of
 * `boundStack`.
 */
export async function finishPause(
  pause: Pause,
  { stopped, below }: { stopped: Promise<void>; below: Promise<LayerPart[]> },
): Promise<CheckpointManifest> {
  const { context, life, freezer, store, n, parent, clock, killed } = pause;
  const { keeper, layout } = life.parts;
  const { id, driver, template } = life.record;
  using signal = firstToAbort(killed, deadlineAfter(sealDeadlineMs));
  const isStopped = stopped.then(() => step(pause, "stopped"));
  // The error is thrown where this is awaited; this keeps it from being an unhandled rejection until then.
  isStopped.catch(() => undefined);
  const [memory, own, owner, cpuFeatures, needs] = await settleAll([
    store.digestMemory(n),
    context.layers.seal(layerId(id, n), layout, signal),
    store.packOwner(n, context.packer, signal),
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
  await keeper.apply("checkpointed", (common) => ({ ...common, state: "paused", checkpoint: n }), {
    phases,
    ...reportedEnded(pause),
  });
  return manifest;
}
