import { mkdir } from "node:fs/promises";
import { detectCgroups } from "@atoll/host";
import {
  SandboxError,
  type CheckpointInfo,
  type CreateRequestInput,
  type ImportedRecord,
  type LayerPart,
  type MachineNeeds,
  type SandboxId,
  type SandboxRecord,
} from "@atoll/protocol";
import { CheckpointStore } from "./checkpoints/checkpoint-store.ts";
import { limitFeatures } from "./checkpoints/common-features.ts";
import { processorFeatures, readCpuFlags } from "./checkpoints/cpu-features.ts";
import { LayerLibrary } from "./checkpoints/layer-library.ts";
import { TreePacker } from "./checkpoints/tree-packer.ts";
import { askCpuFeatures, detectRunsc, idlesForFree } from "./doctor/runsc-features.ts";
import { ContainerRuns } from "./drivers/container-runs.ts";
import { installGuest } from "./drivers/guest-layer.ts";
import { GvisorDriver } from "./drivers/gvisor/gvisor-driver.ts";
import { LocalDriver } from "./drivers/local/local-driver.ts";
import { EngineContext, type StepListener } from "./engine-context.ts";
import { IdleWatch } from "./idle/idle-watch.ts";
import { EventLog } from "./lifecycle/event-log.ts";
import { findLeftovers, type Leftover } from "./lifecycle/leftovers.ts";
import { reconcile, type ReconcileOptions, type Repair } from "./lifecycle/reconcile.ts";
import type { SandboxLife } from "./lifecycle/sandbox-life.ts";
import { createSandbox, type CreateOptions } from "./operations/create.ts";
import { forkSandbox, type ForkOptions, type ForkResult } from "./operations/fork.ts";
import { pauseSandbox, type PauseOptions, type PauseResult } from "./operations/pause.ts";
import { removeCheckpoint } from "./operations/remove-checkpoint.ts";
import { resumeMarked } from "./operations/resume-mark.ts";
import { resumeSandbox, type ResumeOptions, type ResumeResult } from "./operations/resume.ts";
import { retireAllExpired } from "./operations/retire-checkpoints.ts";
import { rollbackSandbox, type RollbackOptions, type RollbackResult } from "./operations/rollback.ts";
import { Sandbox } from "./sandbox.ts";
import { checkFiles, type CheckFilesOptions, type FilesArchive } from "./snapshots/restore-files.ts";
import { saveFiles, type SaveFilesOptions } from "./snapshots/save-files.ts";
import type { DirectoryMark } from "./store/directory-mark.ts";
import { EngineLock } from "./store/engine-lock.ts";
import { DataLayout } from "./store/layout.ts";
import { removeTree } from "./store/remove-tree.ts";
import { SandboxStore } from "./store/sandbox-store.ts";
import { TemplateLibrary } from "./templates/template-library.ts";
import { findCheckpointFiles, unpackOwner, type CheckpointFiles } from "./transfer/checkpoint-files.ts";
import { importCheckpoint } from "./transfer/import-checkpoint.ts";
import {
  importSandbox,
  type CheckpointImport,
  type ImportOptions,
  type SandboxImport,
} from "./transfer/import-sandbox.ts";
import { assertCouldRun, findMachineNeeds, type NeedsOptions } from "./transfer/machine-needs.ts";

/** On a busy machine a sandbox may take seconds to answer. A longer time would not help: clients do not wait longer. */
const defaultGuestTimeoutMs = 30_000;

export interface EngineOptions extends ReconcileOptions {
  /** The directory with everything that the engine stores. One engine at a time uses it. */
  dataDir: string;
  /** The path of the guest's binary, which set-up builds. */
  guestPath: string;
  /** The path of runsc, if it is not on the PATH. */
  runscPath?: string;
  /**
   * How gVisor intercepts system calls; the best platform that runsc offers by default. `systrap` is several times as
   * fast. Under `systrap`, `idleTimerSlackMs` decides what an idle sandbox costs; under `ptrace` it costs nothing.
   */
  platform?: "systrap" | "ptrace" | undefined;
  /**
   * The CPU weight of all sandboxes of this machine together, against everything else on it, while CPU time is short: 1
   * to 10,000, where an ordinary group of processes has 100. A smaller weight keeps the program that owns the engine
   * responsive, however many sandboxes are busy. All engines of a machine share it; by default it stays as it is.
   */
  cpuWeight?: number | undefined;
  /** How long a sandbox may take to start. */
  startTimeoutMs?: number;
  /** How long the guest of a sandbox may leave a question unanswered before it counts as silent. */
  guestTimeoutMs?: number | undefined;
  /**
   * By how much timers inside a sandbox may be late while it is idle, so that gVisor's own timers do not wake it all
   * the time: 250 by default. With 0 timers stay punctual, and an idle sandbox costs about 2 % of a core.
   */
  idleTimerSlackMs?: number | undefined;
  /** Returns the flags of this machine's processors; by default the kernel's. */
  readCpuFlags?: () => Promise<string[]>;
  /**
   * The features of the processor that sandboxes may see, by their names in `/proc/cpuinfo`: those that all machines
   * have that a sandbox may move to. Opening rejects with `unsupported` where the others cannot be hidden. Set it
   * before the first sandbox is created.
   */
  cpuFeatures?: readonly string[] | undefined;
  /**
   * How many of the newest checkpoints of each sandbox stay; all by default. The one that the sandbox depends on always
   * stays.
   */
  keepCheckpoints?: number | undefined;
  /** With `keepCheckpoints`, checkpoints that are not older than this stay as well. */
  keepCheckpointsForMs?: number | undefined;
  atStep?: StepListener;
}

/**
 * Runs the sandboxes of one data directory on this machine. It binds the operations to their parts, which do the work.
 */
export class Engine {
  /** What was found and repaired when this engine started. */
  readonly repairs: readonly Repair[];
  readonly templates: TemplateLibrary;
  readonly events: EventLog;
  /** Distinguishes the data directory from a copy of it. */
  readonly directory: DirectoryMark;
  #context: EngineContext;
  #lock: EngineLock;
  /** Operations that take a sandbox through several states, or involve several sandboxes. */
  #underWay = new Set<Promise<unknown>>();

  private constructor(context: EngineContext, lock: EngineLock, repairs: Repair[]) {
    this.#context = context;
    this.#lock = lock;
    this.repairs = repairs;
    this.templates = context.templates;
    this.events = context.events;
    this.directory = lock.directory;
  }

  /** Locks the data directory, repairs it and adopts the running sandboxes. */
  static async open(options: EngineOptions): Promise<Engine> {
    const layout = new DataLayout(options.dataDir);
    await mkdir(layout.root, { recursive: true, mode: 0o700 });
    const lock = await EngineLock.acquire(layout.lockFile);
    try {
      const context = await assemble(layout, options);
      await Promise.all([context.templates.sweep(), removeTree(layout.copiesDir)]);
      const repairs = await reconcile(context, options);
      await resumeMarked(context);
      await retireAllExpired(context);
      return new Engine(context, lock, repairs);
    } catch (error) {
      await lock.release();
      throw error;
    }
  }

  create(request: CreateRequestInput = {}, options: CreateOptions = {}): Promise<Sandbox> {
    return createSandbox(this.#context, request, options);
  }

  get(id: SandboxId): Sandbox {
    return new Sandbox(this.#life(id));
  }

  list(): SandboxRecord[] {
    return [...this.#context.lives.values()].map((life) => life.record);
  }

  /** Returns true if the sandbox existed. Resolves when nothing of it is left, also if an earlier call kills it. */
  async kill(id: SandboxId): Promise<boolean> {
    const life = this.#context.lives.get(id);
    if (life === undefined) return false;
    await new Sandbox(life).kill();
    return true;
  }

  /**
   * Saves its memory and files and ends its container. If something cannot be saved, it rejects with `unsaveable` and
   * the sandbox still runs.
   */
  async pause(id: SandboxId, options: PauseOptions = {}): Promise<PauseResult> {
    return pauseSandbox(this.#context, this.#life(id), options);
  }

  /** Resumes a paused sandbox with its processes where they were. When it rejects, the sandbox is paused as before. */
  async resume(id: SandboxId, options: ResumeOptions = {}): Promise<ResumeResult> {
    return resumeSandbox(this.#context, this.#life(id), options);
  }

  /** Makes running copies of a sandbox, memory and files, which share what they have in common on disk. */
  async fork(id: SandboxId, options: ForkOptions = {}): Promise<ForkResult> {
    return this.#track(forkSandbox(this.#context, this.#life(id), options));
  }

  /** Returns a sandbox to an earlier checkpoint. Its present state is saved as a checkpoint first. */
  async rollback(id: SandboxId, checkpoint: number, options: RollbackOptions = {}): Promise<RollbackResult> {
    return this.#track(rollbackSandbox(this.#context, this.#life(id), checkpoint, options));
  }

  /** Lists the checkpoints, the oldest first. */
  async checkpoints(id: SandboxId): Promise<CheckpointInfo[]> {
    return new CheckpointStore(this.#life(id).parts.layout).list();
  }

  /** Returns the smallest number that the next checkpoint can have. */
  async nextCheckpoint(id: SandboxId): Promise<number> {
    return new CheckpointStore(this.#life(id).parts.layout).next();
  }

  /**
   * Returns false if there is no checkpoint of this number. Rejects with `in_use` for the one that the sandbox depends
   * on.
   */
  async removeCheckpoint(id: SandboxId, checkpoint: number): Promise<boolean> {
    return removeCheckpoint(this.#context, this.#life(id), checkpoint);
  }

  /** Returns the paths of the parts of a finished checkpoint, for a copy of it. */
  async checkpointFiles(id: SandboxId, checkpoint: number): Promise<CheckpointFiles> {
    return findCheckpointFiles(this.#life(id).parts.layout, checkpoint);
  }

  /**
   * Writes the archive of a layer; its size and digest are those of the part. Rejects with `unrestorable` unless the
   * layer is here and complete.
   */
  async packLayer(part: LayerPart, toPath: string, options: { signal: AbortSignal }): Promise<void> {
    await this.#context.layers.pack(part, toPath, options.signal);
  }

  /** Returns true if this layer is here and complete. */
  async hasLayer(part: LayerPart): Promise<boolean> {
    return this.#context.layers.has(part);
  }

  /**
   * Returns what a machine must have to restore the memory of this sandbox, once it runs here. Returns undefined if its
   * memory cannot be saved.
   */
  async machineNeeds(id: SandboxId, options: NeedsOptions = {}): Promise<MachineNeeds | undefined> {
    return findMachineNeeds(this.#context, this.#life(id), options);
  }

  /**
   * Rejects with `unrestorable`, naming what this machine lacks, unless it could run such a sandbox of another machine,
   * or restore that checkpoint of it.
   */
  async assertCouldRun(
    record: Pick<ImportedRecord, "id" | "driver" | "template">,
    needs: MachineNeeds,
    options: { checkpoint?: number } = {},
  ): Promise<void> {
    await assertCouldRun(this.#context, record, needs, options);
  }

  /**
   * Imports a sandbox from another machine, `paused` at this checkpoint. All parts are verified, and nothing is left
   * when it rejects. After a crash the leftovers are removed when an engine opens the data directory, and the import
   * can be repeated.
   */
  async importSandbox(from: SandboxImport, options: ImportOptions = {}): Promise<Sandbox> {
    return importSandbox(this.#context, from, options);
  }

  /**
   * Adds a checkpoint to a sandbox that is here, for `rollback`, in any state of the sandbox. All parts are verified,
   * and nothing is left when it rejects or is interrupted. Rejects with `already_exists` when the checkpoint is here,
   * and with `unrestorable` when this machine could not restore it.
   */
  async importCheckpoint(
    id: SandboxId,
    from: CheckpointImport,
    options: Pick<ImportOptions, "signal"> = {},
  ): Promise<void> {
    await this.#track(importCheckpoint(this.#context, this.#life(id), from, options));
  }

  /**
   * Fills an empty directory with the contents of the sandbox's `ownerDir` at that checkpoint. Returns false if nothing
   * was saved. Rejects with `unrestorable` when it is damaged.
   */
  async unpackOwner(
    id: SandboxId,
    checkpoint: number,
    into: string,
    options: { signal: AbortSignal },
  ): Promise<boolean> {
    const files = await this.checkpointFiles(id, checkpoint);
    return unpackOwner(this.#context, files, into, options.signal);
  }

  /**
   * Removes a sandbox that lives on another machine from now on, in any state: its container ends and everything of it
   * here is removed. The event says `released`, not `killed`. Idempotent.
   */
  async release(id: SandboxId): Promise<void> {
    await this.#context.lives.get(id)?.release();
  }

  /** Writes what a sandbox has written over its template into a new file, as of one moment. The sandbox continues. */
  async saveFiles(id: SandboxId, toPath: string, options: SaveFilesOptions): ReturnType<typeof saveFiles> {
    return saveFiles(this.#context, this.#life(id), toPath, options);
  }

  /**
   * Rejects with `unrestorable` unless a sandbox can begin with these files, and with `limit_reached` when they take
   * more than `maxBytes`.
   */
  async checkFiles(files: FilesArchive, options: CheckFilesOptions): Promise<void> {
    return checkFiles(this.#context, files, options);
  }

  /**
   * Returns what is on the host with the engine's mark and belongs to no sandbox. What is still there some time later
   * was left behind; before that, a sandbox may be beginning or ending.
   */
  async findLeftovers(): Promise<Leftover[]> {
    return findLeftovers(this.#context);
  }

  /** Closes the engine without ending any sandbox: the next engine on this data directory adopts them. */
  async close(): Promise<void> {
    this.#context.isClosing = true;
    // The next engine must not find operations that still run.
    await Promise.allSettled(this.#underWay);
    const lives = [...this.#context.lives.values()];
    await Promise.all(lives.map((life) => life.settled()));
    for (const life of lives) life.detach();
    await this.#context.layers.settled();
    await this.#lock.release();
  }

  async #track<T>(work: Promise<T>): Promise<T> {
    this.#underWay.add(work);
    try {
      return await work;
    } finally {
      this.#underWay.delete(work);
    }
  }

  #life(id: SandboxId): SandboxLife {
    const life = this.#context.lives.get(id);
    if (life !== undefined) return life;
    throw new SandboxError("not_found", `Cannot find sandbox ${id}`, {
      suggestion: "It never existed, or it has been killed.",
      details: { sandboxId: id },
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

async function assemble(layout: DataLayout, options: EngineOptions): Promise<EngineContext> {
  const [guestLayer, cgroups] = await Promise.all([installGuest(options.guestPath, layout.guestDir), detectCgroups()]);
  if (cgroups === undefined) {
    throw new SandboxError("unsupported", "Cannot run sandboxes: this machine has no writable cgroups", {
      suggestion: "Run as root on a host with cgroup memory and cpu controllers mounted; see `atoll doctor`.",
    });
  }
  if (options.cpuWeight !== undefined) await cgroups.setWeight(options.cpuWeight);
  const runs = new ContainerRuns({ guestPath: options.guestPath, guestLayer, cgroups, namespace: layout.namespace });
  const { cpuFeatures } = options;
  const gvisor = await makeGvisor(runs, options).catch((error: unknown) => {
    // A sandbox that sees more features than allowed would be weaker than requested, so this error is thrown.
    if (error instanceof SandboxError && cpuFeatures === undefined) return error;
    throw error;
  });
  const packer = new TreePacker(options.guestPath);
  const { keepCheckpoints: keepLast, keepCheckpointsForMs: keepForMs = 0 } = options;
  return new EngineContext({
    layout,
    store: new SandboxStore(layout),
    templates: new TemplateLibrary(layout.root),
    cgroups,
    runs,
    events: new EventLog(),
    drivers: { gvisor, local: new LocalDriver({ runs }) },
    startTimeoutMs: options.startTimeoutMs ?? 30_000,
    guestTimeoutMs: options.guestTimeoutMs ?? defaultGuestTimeoutMs,
    idleWatch: new IdleWatch({ slackMs: options.idleTimerSlackMs ?? 250 }),
    guestPath: options.guestPath,
    packer,
    layers: new LayerLibrary(layout, { mergerPath: options.guestPath, packer }),
    readCpuFeatures: async () => processorFeatures(cpuFeatures?.toSorted() ?? (await flagsOf(options))),
    policy: keepLast === undefined ? undefined : { keepLast: Math.max(1, keepLast), keepForMs },
    atStep: options.atStep ?? (() => undefined),
  });
}

function flagsOf(options: EngineOptions): Promise<string[]> {
  return (options.readCpuFlags ?? readCpuFlags)();
}

async function makeGvisor(runs: ContainerRuns, options: EngineOptions): Promise<GvisorDriver> {
  const { cpuFeatures, guestPath } = options;
  const runsc = await detectRunsc(options.runscPath);
  const shownFeatures =
    cpuFeatures === undefined
      ? undefined
      : await limitFeatures(cpuFeatures, {
          runsc,
          cpuFlags: await flagsOf(options),
          askRunsc: () => askCpuFeatures(runsc),
        });
  const { path, version, platforms } = runsc;
  const platform = options.platform ?? platforms[0];
  if (platform === undefined || !platforms.includes(platform)) {
    throw new SandboxError("unsupported", `Cannot run gVisor on platform ${platform ?? "systrap or ptrace"}`, {
      suggestion: `This runsc offers ${platforms.join(" and ") || "neither of them"}.`,
    });
  }
  return new GvisorDriver({
    runs,
    guestPath,
    runscPath: path,
    runscVersion: version,
    platform,
    platforms,
    idlesForFree: idlesForFree(runsc),
    shownFeatures,
  });
}
