import { messageOf } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import type { SourceChange } from "../compiler/app-sources.ts";
import type { LiveEventBody, ReloadCause, ReloadPhase } from "../events/live-event.ts";
import { liveEventOf } from "../events/runtime-events.ts";
import { ModuleGraph } from "../graph/module-graph.ts";
import type { AppHost } from "../isolation/app-host.ts";
import type { AppVersions, Modules } from "../versions/app-versions.ts";
import { RequestFailed, type RuntimeEvent } from "../wire/connection.ts";
import type { ServiceSnapshot } from "../wire/protocol.ts";
import { AppCode, type AppCodeParts, type Generation, type RollbackTarget, type UseCause } from "./app-code.ts";
import type { AppConfig, AppInfo, AppState, ReloadResult } from "./app-options.ts";
import { nextState } from "./app-states.ts";
import { CodeSwap, mergedSnapshots, unswapped } from "./code-swap.ts";
import { Probation } from "./probation.ts";
import { reloadFailure, ReloadFailed } from "./reload-failed.ts";
import { RunningApp } from "./running-app.ts";

/** The runtime keeps a limit itself. The host waits this much longer before it gives up on an answer. */
const graceMs = 2_000;
const startTimeoutMs = 30_000;

export interface ReloadOptions {
  cause: ReloadCause;
  /** A value that is passed to `codeChange`. */
  extra?: unknown;
}

export interface LiveAppParts extends AppCodeParts {
  host: AppHost;
}

/**
 * One application: its process, the generations of its code, and a queue of its own, so that nothing that happens to it
 * makes another application wait.
 */
export class LiveApp {
  readonly id: string;
  readonly folder: string;
  readonly config: AppConfig;
  readonly #code: AppCode;
  readonly #host: AppHost;
  readonly #emit: (event: LiveEventBody) => void;
  #state: AppState = "initializing";
  #reason: string | undefined;
  #turn: Promise<unknown> = Promise.resolve();
  #running: RunningApp | undefined;
  #generation: Generation = { number: 0, modules: new Map() };
  /** What the app goes back to, and its states at that time, until the current generation has held. */
  #previous: { generation: Generation; snapshots: ServiceSnapshot[] } | undefined;
  #probation: Probation | undefined;
  #snapshots: ServiceSnapshot[] = [];
  #ports: AppInfo["ports"] = [];
  #enforcement: string[] = [];
  #restarts: number[] = [];
  #restartCount = 0;
  #lastRestart: AppInfo["lastRestart"];
  #updatedAt = new Date();
  readonly #createdAt = new Date();
  autoReload = false;

  constructor(parts: LiveAppParts) {
    this.id = parts.id;
    this.folder = parts.folder;
    this.config = parts.config;
    this.#code = new AppCode(parts);
    this.#host = parts.host;
    this.#emit = parts.emit;
  }

  get info(): AppInfo {
    return {
      id: this.id,
      state: this.#state,
      reason: this.#reason,
      folder: this.folder,
      isolation: this.#host.level,
      enforcement: this.#enforcement,
      generation: this.#generation.number,
      lastGood: this.versions.lastGood,
      restarts: this.#restartCount,
      lastRestart: this.#lastRestart,
      autoReload: this.autoReload,
      createdAt: this.#createdAt.toISOString(),
      updatedAt: this.#updatedAt.toISOString(),
      ports: this.#ports,
    };
  }

  get versions(): AppVersions {
    return this.#code.versions;
  }

  /** The modules of the current generation. */
  graph(): ModuleGraph {
    return new ModuleGraph(this.#generation.modules.values());
  }

  /** Compiles and starts the app. A failure leaves it in `error`, with the reason. */
  start(): Promise<void> {
    return this.#inTurn(async () => {
      this.#enforcement = await this.#host.enforcement();
      this.#change("compiling");
      try {
        const modules = await this.#code.compile({}, new Map());
        await this.#launch({ number: this.versions.numberOf(modules), modules }, [], "start");
      } catch (error) {
        await this.#end();
        this.#fail(error);
        throw error;
      }
    });
  }

  /** Starts the process again, with the states that it has now. */
  restart(reason = "requested"): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#generation.number === 0) {
        throw new SandboxError("invalid_state", `Cannot restart ${this.id}: it was never started`, {
          suggestion: "Repair its code and reload it.",
        });
      }
      await this.#snapshot();
      await this.#restart(reason);
    });
  }

  /** Brings changed code in: of the given paths, of the given sources, or of whatever differs in the folder. */
  reload(change: SourceChange, options: ReloadOptions): Promise<ReloadResult> {
    return this.#inTurn(async () => {
      const startedAt = performance.now();
      const before = this.#generation;
      let modules: Modules;
      try {
        modules = await this.#code.compile(change, before.modules);
      } catch (error) {
        this.#emit(reloadFailure("compile", error, this.#code.places));
        throw error;
      }
      return this.#swapTo(modules, startedAt, options);
    });
  }

  /** Goes back to earlier code, with migrations of the states where versions differ. */
  rollback(target: RollbackTarget, reason: string): Promise<ReloadResult> {
    return this.#inTurn(async () => {
      const startedAt = performance.now();
      const before = this.#generation;
      const modules = await this.#code.rollbackTo(target, before.modules);
      const result = await this.#swapTo(modules, startedAt, { cause: "rollback" });
      this.#code.setAside(before.modules, modules);
      const { generation: to, durationMs } = result;
      this.#emit({ type: "rollback", from: before.number, to, reason, durationMs });
      return result;
    });
  }

  /** The process, for calls. Throws `invalid_state` when there is none. */
  running(): RunningApp {
    if (this.#running !== undefined) return this.#running;
    const reason = this.#reason === undefined ? "" : `: ${this.#reason}`;
    throw new SandboxError("invalid_state", `App ${this.id} is not running, it is in state ${this.#state}${reason}`);
  }

  /** Ends the app: `terminate` of its services first, then the process. Idempotent. */
  stop(): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#state === "stopped") return;
      this.#change("stopping");
      await this.#running?.connection.request("stop", { deadlineMs: graceMs }, graceMs).catch(() => undefined);
      await this.#end();
      await this.versions.flush();
      this.#change("stopped");
    });
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#turn.then(work);
    this.#turn = result.catch(() => undefined);
    return result;
  }

  async #launch(generation: Generation, snapshots: readonly ServiceSnapshot[], cause: UseCause): Promise<void> {
    this.#change("starting");
    const running = await RunningApp.launch({
      id: this.id,
      folder: this.folder,
      config: this.config,
      host: this.#host,
      onEvent: (event) => this.#onRuntimeEvent(event),
      mapStack: (stack) => this.#code.places.map(stack),
      onEnd: (ended, reason) => this.#onProcessEnd(ended, reason),
    });
    this.#running = running;
    this.#code.places.use(generation.modules);
    await running.start(generation.number, generation.modules.values(), snapshots);
    this.#use(generation, cause);
    this.#code.settleLater(generation.number);
    this.#ports = await running.ports();
    this.#change("running");
  }

  async #swapTo(modules: Modules, startedAt: number, { cause, extra }: ReloadOptions): Promise<ReloadResult> {
    const compileMs = performance.now() - startedAt;
    const before = this.#generation;
    const changed = [...modules.values()].filter(
      ({ module, codeSha256 }) => before.modules.get(module)?.codeSha256 !== codeSha256,
    );
    const removed = [...before.modules.keys()].filter((module) => !modules.has(module));
    const generation: Generation = { number: this.versions.numberOf(modules), modules };
    const names = changed.map(({ module }) => module);
    if (this.#running === undefined) {
      // An app that is in error, or was stopped, is started with the new code.
      await this.#launch(generation, this.#snapshots, cause);
      return unswapped("reloaded", generation.number, names, compileMs, startedAt);
    }
    if (changed.length === 0 && removed.length === 0) {
      // The places of the same code in the sources may be others now.
      this.#use({ number: before.number, modules }, cause);
      return unswapped("no_change", before.number, [], compileMs, startedAt);
    }
    this.#change("reloading");
    this.#emit({ type: "reload.start", modules: names, cause });
    this.#endProbation();
    this.#code.places.stage(modules);
    const swap = new CodeSwap(this.#running.connection, this.config, this.#emit);
    try {
      const { services, snapshots, phases } = await swap.run({
        number: generation.number,
        modules,
        names,
        removed,
        extra,
      });
      this.#snapshots = mergedSnapshots(this.#snapshots, snapshots);
      this.#previous = { generation: before, snapshots: this.#snapshots };
      this.#use(generation, cause);
      this.#change("running");
      this.#probation = new Probation(services, this.config.probationMs, () => this.#settle());
      const durationMs = performance.now() - startedAt;
      this.#emit({ type: "reload.end", generation: generation.number, modules: names, services, durationMs });
      return {
        result: "reloaded",
        generation: generation.number,
        modules: names,
        services,
        durationMs,
        phases: { compile: compileMs, ...phases },
      };
    } catch (error) {
      await this.#giveUpSwap(swap.phase, error);
      throw new ReloadFailed(swap.phase, `Cannot reload ${this.id}: ${messageOf(error)}`, [], error);
    }
  }

  /** Before a commit the old code never stopped; a process that no longer answers is started again with it. */
  async #giveUpSwap(phase: ReloadPhase, error: unknown): Promise<void> {
    this.#emit(reloadFailure(phase, error, this.#code.places));
    this.#code.places.use(this.#generation.modules);
    if (error instanceof RequestFailed && this.#running !== undefined) {
      this.#change("running");
      return;
    }
    await this.#restart(`it did not answer while it was reloaded: ${messageOf(error)}`);
  }

  /** Nothing crashed after a reload: what is kept for going back is dropped. */
  #settle(): void {
    this.#endProbation();
    const generation = this.#generation.number;
    this.#emit({ type: "reload.settle", generation });
    this.versions.settle(generation);
    this.#previous = undefined;
    void this.#running?.connection.request("settle", { generation }, graceMs).catch(() => undefined);
  }

  #endProbation(): void {
    this.#probation?.end();
    this.#probation = undefined;
  }

  #onRuntimeEvent(event: RuntimeEvent): void {
    if (event.t !== "ended") this.#emit(liveEventOf(event, this.#code.places));
    switch (event.t) {
      case "crash": {
        const { service, reason } = event;
        if (this.#probation?.covers(service) === true) this.#revert(`${service} crashed: ${reason}`);
        return;
      }
      case "log":
      case "started":
      case "stopped":
        return;
      case "ended":
        if (this.#probation !== undefined) this.#revert(event.reason);
        else void this.#inTurn(() => this.#recover(`its supervisor gave up: ${event.reason}`));
    }
  }

  /** Goes back to the code and the states of before, since new code crashed in its probation. */
  #revert(reason: string): void {
    const previous = this.#previous;
    this.#endProbation();
    if (previous === undefined) return;
    this.#previous = undefined;
    void this.#inTurn(async () => {
      const startedAt = performance.now();
      const from = this.#generation.number;
      if (this.#running === undefined) return;
      this.#change("reloading");
      try {
        await this.#running.connection.request("revert", { generation: from }, startTimeoutMs);
        this.#goBackTo(previous.generation, reason);
        this.#change("running");
      } catch {
        this.#snapshots = previous.snapshots;
        this.#goBackTo(previous.generation, reason);
        await this.#restart(`it could not go back in place: ${reason}`);
      }
      const durationMs = performance.now() - startedAt;
      this.#emit({ type: "rollback", from, to: previous.generation.number, reason, durationMs });
    });
  }

  #use(generation: Generation, cause: UseCause): void {
    this.#generation = generation;
    this.#code.places.use(generation.modules);
    this.versions.use(generation.modules, cause);
    this.#code.stopSettling();
  }

  #goBackTo(generation: Generation, reason: string): void {
    this.versions.leave(this.#generation.number, reason, generation.number);
    this.#generation = generation;
    this.#code.places.use(generation.modules);
  }

  #onProcessEnd(running: RunningApp, reason: string): void {
    if (this.#running !== running) return;
    this.#running = undefined;
    this.#code.stopSettling();
    const previous = this.#probation === undefined ? undefined : this.#previous;
    this.#endProbation();
    void this.#inTurn(async () => {
      if (this.#running !== undefined || this.#state === "stopped" || this.#state === "stopping") return;
      if (previous !== undefined) {
        const from = this.#generation.number;
        this.#goBackTo(previous.generation, reason);
        this.#snapshots = previous.snapshots;
        this.#emit({ type: "rollback", from, to: previous.generation.number, reason, durationMs: 0 });
      }
      await this.#recover(reason);
    });
  }

  /** Starts the app again unless it ended too often; then it stays in `error`, where a person sees it. */
  async #recover(reason: string): Promise<void> {
    // A supervision tree that was asked to stop reports its end, too.
    if (this.#state === "stopped") return;
    const now = performance.now();
    this.#restarts = [...this.#restarts.filter((at) => now - at < this.config.restartWindowMs), now];
    const willRestart = this.#restarts.length <= this.config.maxRestarts && this.#generation.number > 0;
    this.#emit({ type: "process.end", reason, willRestart });
    if (willRestart) {
      await this.#restart(reason);
      return;
    }
    await this.#end();
    this.#fail(new Error(`it ended too often, the last time because ${reason}`));
  }

  async #restart(reason: string): Promise<void> {
    await this.#end();
    this.#restartCount += 1;
    this.#lastRestart = { at: new Date().toISOString(), reason };
    try {
      await this.#launch(this.#generation, this.#snapshots, "start");
    } catch (error) {
      await this.#end();
      this.#fail(error);
    }
  }

  /** Reads the states of all services, so that a restart goes on with them. */
  async #snapshot(): Promise<void> {
    if (this.#running === undefined) return;
    const { suspendTimeoutMs } = this.config;
    const { snapshots } = await this.#running.connection.request(
      "snapshot",
      { timeoutMs: suspendTimeoutMs },
      suspendTimeoutMs + graceMs,
    );
    this.#snapshots = snapshots;
  }

  async #end(): Promise<void> {
    this.#endProbation();
    this.#code.stopSettling();
    const running = this.#running;
    this.#running = undefined;
    if (running === undefined) return;
    await running.kill();
  }

  #change(to: AppState, reason?: string): void {
    if (this.#state === to) return;
    const from = this.#state;
    this.#state = nextState(from, to);
    this.#reason = reason;
    this.#updatedAt = new Date();
    this.#emit({ type: "app.state", state: to, from, ...(reason === undefined ? {} : { reason }) });
  }

  #fail(error: unknown): void {
    this.#change("error", messageOf(error));
  }
}
