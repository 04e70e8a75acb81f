import { link, mkdir } from "node:fs/promises";
import { join } from "node:path";
import {
  assertAccepts,
  isSandboxError,
  type CheckpointManifest,
  type PhaseTimes,
  type SandboxId,
} from "@atoll/protocol";
import { z } from "zod";
import { CheckpointStore } from "../checkpoints/checkpoint-store.ts";
import { filesOf, layerBytesOf, needsOf, withMemory } from "../checkpoints/launch-source.ts";
import { PhaseClock } from "../checkpoints/phase-clock.ts";
import { verifyCheckpoint } from "../checkpoints/verify-checkpoint.ts";
import type { EngineContext } from "../engine-context.ts";
import type { EgressHandler } from "../guest/egress-relay.ts";
import { RecordKeeper } from "../lifecycle/record-keeper.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { Sandbox } from "../sandbox.ts";
import { parseRequest } from "../support/parse-request.ts";
import { warn } from "../support/warn.ts";
import { newRecord } from "./new-record.ts";
import { pauseSandbox } from "./pause.ts";
import { markForResume, unmark } from "./resume-mark.ts";
import { resumeSandbox } from "./resume.ts";

/** The number of the first checkpoint of a fork. */
const firstCheckpoint = 1;

const ForkRequest = z.strictObject({ count: z.int().min(1).max(64).default(1) });

export interface ForkOptions {
  /** The number of copies, 1 by default. */
  count?: number;
  /** Ends the processes that prevent a checkpoint. */
  force?: boolean;
  signal?: AbortSignal;
  /**
   * Called while the sandbox is paused: the caller can copy what it keeps about the parent, as the copies will find it.
   * When it rejects, no copies are made.
   */
  whilePaused?: () => Promise<void>;
  /** The handler as for `create`, per copy. */
  onEgress?: (sandboxId: SandboxId) => EgressHandler | undefined;
  /** The deadline as for `create`, for each copy. The parent keeps its own. */
  allowUntil?: number | undefined;
  /** The number of the checkpoint of a running parent, as for `pause`. */
  checkpoint?: number | undefined;
}

export interface ForkResult {
  sandboxes: Sandbox[];
  /** The checkpoint of the parent that the copies were made of. */
  checkpoint: number;
  phases: PhaseTimes;
  totalMs: number;
}

/**
 * Makes running copies of a sandbox, memory and files. A running parent is paused for the checkpoint and continues
 * together with its copies; a paused one stays paused. All copies start or none.
 */
export async function forkSandbox(
  context: EngineContext,
  parent: SandboxLife,
  options: ForkOptions = {},
): Promise<ForkResult> {
  const { count } = parseRequest(ForkRequest, options.count === undefined ? {} : { count: options.count }, "fork");
  const clock = new PhaseClock();
  const signal = options.signal ?? new AbortController().signal;
  signal.throwIfAborted();
  assertAccepts(parent.record, "fork");
  const wasRunning = parent.record.state === "running";
  try {
    if (wasRunning) {
      await markForResume(parent);
      const { checkpoint } = options;
      const number = checkpoint === undefined ? {} : { checkpoint };
      await pauseSandbox(context, parent, { force: options.force === true, signal, ...number });
      await context.atStep("fork: paused", parent.record.id);
    }
    clock.lap("pause");
    return await forkPaused({ context, parent, wasRunning, clock }, count, { ...options, signal });
  } finally {
    if (wasRunning) await unmark(parent);
  }
}

interface Fork {
  context: EngineContext;
  parent: SandboxLife;
  /** A parent that was running is resumed, whether or not its copies start. */
  wasRunning: boolean;
  clock: PhaseClock;
}

async function forkPaused(
  fork: Fork,
  count: number,
  options: ForkOptions & { signal: AbortSignal },
): Promise<ForkResult> {
  const { context, parent, wasRunning, clock } = fork;
  const { record } = parent;
  if (record.state !== "paused") throw new Error(`A ${record.state} sandbox cannot be forked`);
  // The parent may be paused again before all copies have what they need of its checkpoint.
  const release = context.pinnedCheckpoints.pin([parent.parts.layout.checkpoint(record.checkpoint).dir]);
  try {
    // A checkpoint that was just saved is verified already.
    const manifest = wasRunning
      ? await new CheckpointStore(parent.parts.layout).read(record.checkpoint)
      : await verifyCheckpoint(context, parent, record.checkpoint, { memory: true, signal: options.signal });
    clock.lap("verify");
    await options.whilePaused?.();
    await context.atStep("fork: ready", record.id);
    clock.lap("caller");
    const sandboxes = await startBoth(fork, manifest, count, options);
    await context.atStep("fork: started", record.id);
    clock.lap("start");
    const { phases, totalMs } = clock;
    return { sandboxes, checkpoint: manifest.n, phases, totalMs };
  } catch (error) {
    // The caller gets the reason why there are no copies; the parent's state says whether it runs.
    if (wasRunning) await resumeParent(context, parent).catch(warn);
    throw error;
  } finally {
    release();
  }
}

/** Starts the copies and, if it was running, the parent. When one of them does not start, no copy is left. */
async function startBoth(
  { context, parent, wasRunning }: Fork,
  manifest: CheckpointManifest,
  count: number,
  options: ForkOptions & { signal: AbortSignal },
): Promise<Sandbox[]> {
  const [started, woken] = await Promise.allSettled([
    startCopies(context, parent, manifest, count, options),
    wasRunning ? resumeParent(context, parent) : undefined,
  ]);
  if (started.status === "rejected") throw started.reason;
  if (woken.status === "fulfilled") return started.value;
  await killAll(started.value, "the sandbox that it is a copy of did not start again");
  throw woken.reason;
}

/**
 * Resumes the parent, whether or not its copies start. If another call has resumed or killed it first, there is nothing
 * to do.
 */
async function resumeParent(context: EngineContext, parent: SandboxLife): Promise<void> {
  await resumeSandbox(context, parent).catch((error: unknown) => {
    if (!isSandboxError(error, "invalid_state") && !isSandboxError(error, "sandbox_ended")) throw error;
  });
  // From now on a pause is meant to last.
  await unmark(parent);
}

async function killAll(sandboxes: readonly Sandbox[], message: string): Promise<void> {
  await Promise.all(sandboxes.map((sandbox) => sandbox.kill({ kind: "start", message })));
}

async function startCopies(
  context: EngineContext,
  parent: SandboxLife,
  manifest: CheckpointManifest,
  count: number,
  options: ForkOptions & { signal: AbortSignal },
): Promise<Sandbox[]> {
  const started = await Promise.allSettled(
    Array.from({ length: count }, () => startCopy(context, parent, manifest, options)),
  );
  const sandboxes = started.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
  const failed = started.find((result) => result.status === "rejected");
  if (failed === undefined) return sandboxes;
  await killAll(sandboxes, "another copy did not start");
  throw failed.reason;
}

async function startCopy(
  context: EngineContext,
  parent: SandboxLife,
  manifest: CheckpointManifest,
  options: ForkOptions & { signal: AbortSignal },
): Promise<Sandbox> {
  const { driver, template } = parent.parts;
  const record = newRecord(parent.record);
  const keeper = new RecordKeeper(record, context.store, context.events.emit);
  const life = context.addLife(keeper, { driver, template, onEgress: options.onEgress?.(record.id) });
  try {
    await life.deadline.set(options.allowUntil);
    await keeper.begin();
    const own = await inherit(context, parent, life, manifest);
    await context.atStep("fork: inherited", record.id);
    const from = withMemory(context, life, filesOf(context, life, own), own.n, needsOf(own));
    const layerBytes = layerBytesOf(own);
    await life.start(record.containerId, Promise.resolve(), { signal: options.signal, from, base: own.n, layerBytes });
    return new Sandbox(life);
  } catch (error) {
    await life.kill({ kind: "start", message: error instanceof Error ? error.message : String(error) });
    throw error;
  }
}

/** Gives the copy a checkpoint of its own, made of the same files: it stays when the parent is killed. */
async function inherit(
  context: EngineContext,
  parent: SandboxLife,
  life: SandboxLife,
  manifest: CheckpointManifest,
): Promise<CheckpointManifest> {
  const from = parent.parts.layout.checkpoint(manifest.n).memoryDir;
  const to = life.parts.layout.checkpoint(firstCheckpoint).memoryDir;
  await mkdir(to, { recursive: true, mode: 0o700 });
  await Promise.all(manifest.memory.map(({ name }) => link(join(from, name), join(to, name))));
  // What the owner keeps about the parent is not copied to the copy.
  const { owner: _, ...inherited } = manifest;
  const own: CheckpointManifest = {
    ...inherited,
    sandboxId: life.record.id,
    n: firstCheckpoint,
    parent: null,
    origin: { sandboxId: manifest.sandboxId, n: manifest.n },
  };
  await context.layers.publish([], () => new CheckpointStore(life.parts.layout).publish(own));
  return own;
}
