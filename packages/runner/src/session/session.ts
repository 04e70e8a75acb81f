import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "@atoll/host";
import { deadlineAfter, firstToAbort, isSandboxError } from "@atoll/protocol";
import type { KeyedLock } from "../cache/keyed-lock.ts";
import type { SnapshotCache } from "../cache/snapshot-cache.ts";
import type { TaskRecords } from "../cache/task-records.ts";
import type { RunnerSandbox, SandboxClient } from "../client/sandbox-client.ts";
import type { CompatFix } from "../compat/compat-fix.ts";
import type { PlanEnvironment } from "../environments/environment.ts";
import type { EmitEvent } from "../journal/events.ts";
import type { CommandResult } from "../models/command.ts";
import type { AttemptResult, StageName, StageResult } from "../models/report.ts";
import type { RepoSpec } from "../models/sandbox-config.ts";
import type { Instance, Prediction } from "../models/task.ts";
import { SandboxContext } from "./sandbox-context.ts";
import { StageFailure } from "./stage-context.ts";

/** What all sessions of a run share. */
export interface SessionServices {
  client: SandboxClient;
  /** The directory of the run. */
  directory: string;
  cacheDirectory: string;
  /** Absent where the client has no snapshots: then one sandbox is used from beginning to end. */
  snapshots: SnapshotCache | undefined;
  records: TaskRecords;
  locks: KeyedLock;
  /** `false`: snapshots have names of their own, and are removed with the session. */
  useCache: boolean;
  labels: Readonly<Record<string, string>>;
  plan: PlanEnvironment;
  catalogue: readonly CompatFix[];
  seeds: readonly number[];
  repeat: number;
  quarantine: readonly string[];
  emit: EmitEvent;
  /** Makes everything durable that was emitted. */
  sync: () => Promise<void>;
}

export interface SessionItem {
  /** Unique in the run, and a name of a directory. */
  label: string;
  instance: Instance;
  prediction: Prediction | null;
  repo: RepoSpec | undefined;
  compat: RepoSpec["compat"];
  key: string;
}

const removeTimeoutMs = 60_000;

/** One item on its way through the stages: its sandbox, its files on the host and its results. */
export class Session implements AsyncDisposable {
  readonly services: SessionServices;
  readonly item: SessionItem;
  readonly scratch: string;
  readonly stages: StageResult[] = [];
  readonly attempts: AttemptResult[] = [];
  readonly #signal: AbortSignal;
  #stage: { name: StageName; signal: AbortSignal; commands: CommandResult[] } | undefined;
  #sandbox: RunnerSandbox | undefined;
  /** Names of snapshots that only this session uses. */
  readonly #ownSnapshots = new Set<string>();
  #numbers = 0;
  /** The end of a stage is made durable while the next one runs. */
  #synced: Promise<void> = Promise.resolve();

  private constructor(services: SessionServices, item: SessionItem, scratch: string, signal: AbortSignal) {
    this.services = services;
    this.item = item;
    this.scratch = scratch;
    this.#signal = signal;
  }

  static async open(services: SessionServices, item: SessionItem, signal: AbortSignal): Promise<Session> {
    const parent = join(services.directory, "scratch");
    await mkdir(parent, { recursive: true });
    return new Session(services, item, await mkdtemp(join(parent, "session-")), signal);
  }

  get config(): Instance["task"]["sandbox"] {
    return this.item.instance.task.sandbox;
  }

  /** The signal of the stage that runs. */
  get signal(): AbortSignal {
    return this.#stage?.signal ?? this.#signal;
  }

  get sandbox(): RunnerSandbox {
    if (this.#sandbox === undefined) throw new Error("There is no sandbox at this stage");
    return this.#sandbox;
  }

  get hasSandbox(): boolean {
    return this.#sandbox !== undefined;
  }

  /** Starts a sandbox in place of the one that there is. */
  async start(snapshot: string | undefined, extraNetwork: readonly string[] = [], network = true): Promise<void> {
    await this.removeSandbox();
    const { client, labels, emit } = this.services;
    const hosts = [...this.config.network, ...extraNetwork];
    const { label } = this.item;
    const sandbox = await client.start({
      config: { ...this.config, network: hosts },
      name: `${sandboxName(this.config.name ?? label)}-${randomBytes(4).toString("hex")}`,
      labels: { ...labels, "atoll.runner.item": label.slice(0, 60) },
      ...(snapshot === undefined ? {} : { snapshot }),
      network: network && hosts.length > 0,
      signal: this.signal,
    });
    this.#sandbox = sandbox;
    emit({ type: "sandbox.start", instance: label, id: sandbox.id, ...(snapshot === undefined ? {} : { snapshot }) });
  }

  /** Saves the files of the sandbox under a name. Without a cache, the name is removed with the session. */
  async saveSnapshot(name: string): Promise<void> {
    if (!this.services.useCache) this.#ownSnapshots.add(name);
    await this.services.snapshots?.save(this.sandbox, name, this.signal);
  }

  /** This runs after an abort too: nothing of a session outlives it. */
  async removeSandbox(): Promise<void> {
    const sandbox = this.#sandbox;
    if (sandbox === undefined) return;
    this.#sandbox = undefined;
    await sandbox.remove(deadlineAfter(removeTimeoutMs));
    this.services.emit({ type: "sandbox.remove", instance: this.item.label, id: sandbox.id });
  }

  /** The current stage at work in the current sandbox. */
  context(env: Readonly<Record<string, string>> = {}): SandboxContext {
    const stage = this.#stage;
    if (stage === undefined) throw new Error("There is no stage");
    const { directory, emit } = this.services;
    return new SandboxContext({
      sandbox: this.sandbox,
      workdir: this.config.workdir,
      scratch: this.scratch,
      signal: stage.signal,
      stage: stage.name,
      label: this.item.label,
      directory,
      env,
      results: stage.commands,
      nextNumber: () => ++this.#numbers,
      emit,
    });
  }

  /**
   * Runs a stage and records it. A failure of the infrastructure is tried again where that is safe. Rejects with
   * `StageFailure`, or with the reason of the signal when the run is ended.
   */
  async runStage<Result extends StageOutcome>(stage: StageRow, run: () => Promise<Result>): Promise<Result> {
    const { emit, sync } = this.services;
    const { label } = this.item;
    const startedAt = new Date().toISOString();
    const startMs = performance.now();
    const commands: CommandResult[] = [];
    emit({ type: "stage.start", instance: label, stage: stage.name });
    const end = async (status: StageResult["status"], tries: number, reason?: string): Promise<void> => {
      this.#stage = undefined;
      const durationMs = performance.now() - startMs;
      const why = reason === undefined ? {} : { reason };
      this.stages.push({ stage: stage.name, status, ...why, startedAt, durationMs, tries, commands });
      emit({ type: "stage.end", instance: label, stage: stage.name, status, durationMs, ...why });
      await this.#synced;
      this.#synced = sync();
      // The end of the next stage reports a failure.
      this.#synced.catch(() => undefined);
    };
    for (let tries = 1; ; tries += 1) {
      const result = await this.#tryStage(stage, commands, run);
      if (this.#signal.aborted && result instanceof StageFailure) {
        await end("failed", tries, "interrupted");
        throw this.#signal.reason;
      }
      if (!(result instanceof StageFailure)) {
        await end(result.status, tries, result.reason);
        return result;
      }
      if (result.blame === "infrastructure" && tries < stage.tries) continue;
      await end("failed", tries, result.message);
      throw result;
    }
  }

  async #tryStage<Result>(
    stage: StageRow,
    commands: CommandResult[],
    run: () => Promise<Result>,
  ): Promise<Result | StageFailure> {
    const deadline = deadlineAfter(stage.timeoutMs);
    using signal = firstToAbort(this.#signal, deadline);
    this.#stage = { name: stage.name, signal, commands };
    try {
      return await run();
    } catch (error) {
      return deadline.aborted ? tooLong(stage) : asFailure(error);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.removeSandbox();
      for (const name of this.#ownSnapshots) {
        await this.services.snapshots?.remove(name, deadlineAfter(removeTimeoutMs));
        this.#ownSnapshots.delete(name);
      }
    } finally {
      await rm(this.scratch, { recursive: true, force: true });
    }
  }
}

/** A row of the table of stages. */
export interface StageRow {
  name: StageName;
  /** The time limit of the whole stage; commands have limits of their own. */
  timeoutMs: number;
  /** More than one where a second try cannot meet what the first has left. */
  tries: number;
}

export interface StageOutcome {
  status: StageResult["status"];
  reason?: string;
}

const tooLong = ({ name, timeoutMs }: StageRow): StageFailure =>
  new StageFailure("timeout", `The stage ${name} took longer than ${timeoutMs / 1000} s`);

function asFailure(error: unknown): StageFailure {
  if (error instanceof StageFailure) return error;
  const advice = isSandboxError(error) && error.suggestion !== undefined ? ` ${error.suggestion}` : "";
  return new StageFailure("infrastructure", `${messageOf(error)}${advice}`, { cause: error });
}

const sandboxName = (text: string): string =>
  text
    .toLowerCase()
    .replaceAll(/[^a-z0-9._-]+/g, "-")
    .replace(/^[^a-z0-9]+/, "")
    .slice(0, 40) || "task";
