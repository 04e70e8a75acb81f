import { setTimeout } from "node:timers/promises";
import { messageOf } from "@atoll/host";
import { isSandboxError, SandboxError, type SecurityProfile } from "@atoll/protocol";
import type { LiveEventBody, ReloadPhase } from "../events/live-event.ts";
import { liveEventOf } from "../events/runtime-events.ts";
import { ModuleGraph } from "../graph/module-graph.ts";
import type { AppHost } from "../isolation/app-host.ts";
import type { Recovery } from "../recovery/classify.ts";
import type { AppVersions, Modules } from "../versions/app-versions.ts";
import { RequestFailed, type RuntimeEvent } from "../wire/connection.ts";
import type { ServiceSnapshot } from "../wire/protocol.ts";
import {
  AppCode,
  type AppCodeParts,
  type CodeChange,
  type Generation,
  type RollbackTarget,
  type UseCause,
} from "./app-code.ts";
import type { AppConfig, AppInfo, ReloadOptions, ReloadResult } from "./app-options.ts";
import { AppRecovery, type Kept } from "./app-recovery.ts";
import { AppSnapshots } from "./app-snapshots.ts";
import { AppStatus } from "./app-status.ts";
import { changesBetween, CodeSwap, unswapped } from "./code-swap.ts";
import { Probation } from "./probation.ts";
import { reloadFailure, ReloadFailed } from "./reload-failed.ts";
import { RunningApp } from "./running-app.ts";

/** The runtime keeps a limit itself. The host waits this much longer before it gives up on an answer. */
const graceMs = 2_000;
const startTimeoutMs = 30_000;
/** Each retry waits twice as long as the one before. */
const firstRetryMs = 100;

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
  readonly profile: SecurityProfile;
  readonly #emit: (event: LiveEventBody) => void;
  readonly #status: AppStatus;
  #turn: Promise<unknown> = Promise.resolve();
  #running: RunningApp | undefined;
  #generation: Generation = { number: 0, modules: new Map() };
  #probation: Probation | undefined;
  readonly #snapshots: AppSnapshots;
  readonly #recovery: AppRecovery;

  constructor(parts: LiveAppParts) {
    this.id = parts.id;
    this.folder = parts.folder;
    this.config = parts.config;
    this.#code = new AppCode(parts);
    this.#host = parts.host;
    this.profile = parts.profile;
    this.#emit = parts.emit;
    this.#status = new AppStatus(
      { id: parts.id, folder: parts.folder, isolation: parts.host.level, profile: parts.profile.name },
      parts.emit,
    );
    this.#snapshots = new AppSnapshots(parts.config);
    this.#recovery = new AppRecovery(parts.id, parts.config, parts.versions, parts.emit);
  }

  get info(): AppInfo {
    return this.#status.info(this.#generation.number, this.versions.lastGood);
  }

  set autoReload(isOn: boolean) {
    this.#status.autoReload = isOn;
  }

  get versions(): AppVersions {
    return this.#code.versions;
  }

  /** The modules of the current generation. */
  graph(): ModuleGraph {
    return new ModuleGraph(this.#generation.modules.values());
  }

  /** Compiles and starts the app, or starts a stored generation. A failure leaves it in `error`, with the reason. */
  start(stored?: number): Promise<void> {
    return this.#inTurn(async () => {
      this.#status.enforcement = await this.#host.enforcement();
      this.#status.change("compiling");
      try {
        const modules = await (stored === undefined ? this.#code.next({}, new Map()) : this.#code.stored(stored));
        await this.#launch({ number: this.versions.numberOf(modules), modules }, [], "start");
      } catch (error) {
        await this.#end();
        this.#status.fail(error);
        throw error;
      }
    });
  }

  /** Starts the process again, with the states that it has now or without any. */
  restart({ keepState = true }: { keepState?: boolean } = {}): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#generation.number === 0) {
        throw new SandboxError("invalid_state", `Cannot restart ${this.id}: it was never started`, {
          suggestion: "Repair its code and reload it.",
        });
      }
      this.#recovery.forget();
      if (keepState) await this.#takeSnapshots();
      else this.#snapshots.current = [];
      await this.#restart("requested");
    });
  }

  /** Brings changed code in: of the given paths, of the given sources, or of whatever differs in the folder. */
  reload(change: CodeChange, options: ReloadOptions): Promise<ReloadResult> {
    return this.#inTurn(async () => {
      this.#recovery.assertNotIsolated();
      const startedAt = performance.now();
      const before = this.#generation;
      let modules: Modules;
      try {
        modules = await this.#code.next(change, before.modules);
      } catch (error) {
        const phase = error instanceof ReloadFailed ? error.phase : "compile";
        this.#emit(reloadFailure(phase, error, this.#code.places));
        throw error;
      }
      return this.#swapTo(modules, startedAt, options);
    });
  }

  /** Goes back to earlier code, with migrations of the states where versions differ. */
  rollback(target: RollbackTarget, reason: string): Promise<ReloadResult> {
    return this.#inTurn(() => this.#rollback(target, reason));
  }

  /** Does what helps against an error, and returns what that was. */
  handle(error: unknown): Promise<Recovery> {
    return this.#inTurn(() => this.#recover(error));
  }

  /** The process, for calls. Throws `invalid_state` when there is none. */
  running(): RunningApp {
    if (this.#running !== undefined) return this.#running;
    const { state, reason } = this.#status;
    const why = reason === undefined ? "" : `: ${reason}`;
    throw new SandboxError("invalid_state", `Cannot use app ${this.id}: it is not running but ${state}${why}`, {
      suggestion: "Repair its code and reload it, or restart it.",
    });
  }

  /** Ends the app: `terminate` of its services first, then the process. Idempotent. */
  stop({ keepState = false, reason }: { keepState?: boolean; reason?: string } = {}): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#status.state === "stopped") return;
      if (keepState) await this.#takeSnapshots();
      this.#status.change("stopping");
      await this.#running?.connection.request("stop", { deadlineMs: graceMs }, graceMs).catch(() => undefined);
      await this.#end();
      this.#code.stop();
      await this.versions.flush();
      this.#status.change("stopped", reason);
    });
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#turn.then(work);
    this.#turn = result.catch(() => undefined);
    return result;
  }

  async #rollback(target: RollbackTarget, reason: string): Promise<ReloadResult> {
    this.#recovery.assertNotIsolated();
    const startedAt = performance.now();
    const before = this.#generation;
    const modules = await this.#code.rollbackTo(target, before.modules);
    const result = await this.#swapTo(modules, startedAt, { cause: "rollback" });
    this.#code.setAside(before.modules, modules);
    const { generation: to, durationMs } = result;
    this.#emit({ type: "rollback", from: before.number, to, reason, durationMs });
    return result;
  }

  async #launch(generation: Generation, snapshots: readonly ServiceSnapshot[], cause: UseCause): Promise<void> {
    this.#status.change("starting");
    const running = await RunningApp.launch({
      id: this.id,
      folder: this.folder,
      config: this.config,
      profile: this.profile,
      host: this.#host,
      onEvent: (event) => this.#onRuntimeEvent(event),
      mapStack: (stack) => this.#code.places.map(stack),
      onEnd: (ended, error) => this.#onProcessEnd(ended, error),
    });
    this.#running = running;
    this.#code.places.use(generation.modules);
    await running.start(generation.number, generation.modules.values(), snapshots);
    this.#use(generation, cause);
    this.#code.settleLater(generation.number);
    this.#code.checkTypesLater(generation.number, generation.modules);
    this.#status.ports = await running.ports();
    this.#status.change("running");
    this.#snapshots.regularly(() => this.#inTurn(() => this.#takeSnapshots()));
  }

  async #swapTo(modules: Modules, startedAt: number, { cause, extra }: ReloadOptions): Promise<ReloadResult> {
    const compileMs = performance.now() - startedAt;
    const before = this.#generation;
    const { names, removed } = changesBetween(before.modules, modules);
    const generation: Generation = { number: this.versions.numberOf(modules), modules };
    if (this.#running === undefined) {
      // An app that is in error, or was stopped, is started with the new code.
      await this.#launch(generation, this.#snapshots.current, cause);
      return unswapped("reloaded", generation.number, names, compileMs, startedAt);
    }
    if (names.length === 0 && removed.length === 0) {
      // The places of the same code in the sources may be others now.
      this.#use({ number: before.number, modules }, cause);
      return unswapped("no_change", before.number, [], compileMs, startedAt);
    }
    this.#status.change("reloading");
    this.#emit({ type: "reload.start", modules: names, cause });
    this.#code.places.stage(modules);
    await this.#snapshots.takeQuickly(this.#running).catch(() => undefined);
    const swap = new CodeSwap(this.#running.connection, this.config, this.#emit);
    try {
      const { services, snapshots, phases } = await swap.run({ ...generation, names, removed, extra });
      this.#snapshots.merge(snapshots);
      const previous = { generation: before, snapshots: this.#snapshots.current };
      this.#recovery.left(previous);
      this.#use(generation, cause);
      this.#code.checkTypesLater(generation.number, modules);
      this.#status.change("running");
      this.#probation?.end();
      const trial = { generation: generation.number, services, previous };
      this.#probation = new Probation(trial, this.config.probationMs, () => this.#settle());
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
      this.#snapshots.merge(swap.captured);
      await this.#giveUpSwap(swap.phase, error);
      throw new ReloadFailed(swap.phase, `Cannot reload ${this.id}: ${messageOf(error)}`, [], error);
    }
  }

  /** Before a commit the old code never stopped; a process that no longer answers is started again with it. */
  async #giveUpSwap(phase: ReloadPhase, error: unknown): Promise<void> {
    this.#emit(reloadFailure(phase, error, this.#code.places));
    this.#code.places.use(this.#generation.modules);
    if (error instanceof RequestFailed && this.#running !== undefined) {
      this.#status.change("running");
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
    void this.#running?.connection.request("settle", { generation }, graceMs).catch(() => undefined);
  }

  #endProbation(): void {
    this.#probation?.end();
    this.#probation = undefined;
  }

  #onRuntimeEvent(event: RuntimeEvent): void {
    if (event.t !== "ended") this.#emit(liveEventOf(event, this.#code.places));
    if (event.t === "crash" && this.#probation?.covers(event.service) === true) {
      this.#revert(this.#probation, `${event.service} crashed: ${event.reason}`);
    } else if (event.t === "ended") {
      if (this.#probation !== undefined) this.#revert(this.#probation, event.reason);
      else this.#recoverInTurn(new SandboxError("handler_failed", `its supervisor gave up: ${event.reason}`));
    }
  }

  /** Goes back to the code and the states of before, since new code crashed in its probation. */
  #revert({ generation, previous }: Probation, reason: string): void {
    this.#endProbation();
    void this.#inTurn(async () => {
      // A reload that was at work has brought other code.
      if (this.#running === undefined || this.#generation.number !== generation) return;
      const startedAt = performance.now();
      this.#status.change("reloading");
      try {
        await this.#running.connection.request("revert", { generation }, startTimeoutMs);
        this.#goBackTo(previous.generation, reason);
        this.#status.change("running");
        const durationMs = performance.now() - startedAt;
        this.#emit({ type: "rollback", from: generation, to: previous.generation.number, reason, durationMs });
      } catch {
        this.#leaveFor(previous, reason);
        await this.#restart(`it could not go back in place: ${reason}`);
      }
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

  #onProcessEnd(running: RunningApp, error: SandboxError): void {
    if (this.#running !== running) return;
    this.#running = undefined;
    this.#code.stopSettling();
    const previous = this.#probation?.previous;
    this.#endProbation();
    void this.#inTurn(async () => {
      if (this.#running !== undefined || ["stopped", "stopping"].includes(this.#status.state)) return;
      if (previous !== undefined) this.#leaveFor(previous, error.message);
      await this.#recover(error);
    });
  }

  /** What runs is left for other code, with the states of that time. It is started by the caller. */
  #leaveFor({ generation, snapshots }: Kept, reason: string): void {
    const from = this.#generation.number;
    this.#goBackTo(generation, reason);
    this.#snapshots.current = snapshots;
    this.#emit({ type: "rollback", from, to: generation.number, reason, durationMs: 0 });
  }

  #recoverInTurn(error: SandboxError): void {
    void this.#inTurn(async () => {
      // A supervision tree that was asked to stop reports its end, too.
      if (this.#status.state !== "stopped") await this.#recover(error);
    });
  }

  /**
   * Does what `suggestRecovery` says. An app that ends again and again goes back to the last good generation, and when
   * that does not hold either, it stays in `error`, where a person sees it.
   */
  async #recover(error: unknown): Promise<Recovery> {
    const isRunning = this.#running !== undefined && !isSandboxError(error, "handler_failed");
    if (!isRunning && this.#status.state !== "error") this.#status.change("starting");
    const now = { generation: this.#generation, snapshots: this.#snapshots.current };
    const { recovery, attempts, isRefusal, lastGood } = await this.#recovery.decide(error, isRunning, now);
    const reason = messageOf(error);
    switch (recovery) {
      case "retry":
        if (this.#running !== undefined) break;
        await setTimeout(firstRetryMs * 2 ** attempts);
        await this.#restart(reason);
        break;
      case "restart":
        await this.#restart(reason);
        break;
      case "rollback":
        if (isRefusal || lastGood === undefined) break;
        if (isRunning) await this.#rollback({ generation: lastGood.generation.number }, reason);
        else {
          this.#leaveFor(lastGood, reason);
          await this.#restart(reason);
        }
        break;
      case "isolate":
        this.#recovery.isolate(reason);
        await this.#end();
        this.#status.fail(error);
        break;
      case "terminate":
        await this.#end();
        this.#status.fail(attempts === 0 ? error : `it ended too often, the last time because ${reason}`);
    }
    return recovery;
  }

  async #takeSnapshots(): Promise<void> {
    if (this.#running !== undefined) await this.#snapshots.take(this.#running);
  }

  async #restart(reason: string): Promise<void> {
    await this.#end();
    this.#status.countRestart(reason);
    try {
      await this.#launch(this.#generation, this.#snapshots.current, "start");
    } catch (error) {
      await this.#end();
      // The number of restarts is bounded, and so is this.
      await this.#recover(error);
    }
  }

  async #end(): Promise<void> {
    this.#endProbation();
    this.#code.stopSettling();
    this.#snapshots.stop();
    const running = this.#running;
    this.#running = undefined;
    if (running === undefined) return;
    await running.kill();
  }
}
