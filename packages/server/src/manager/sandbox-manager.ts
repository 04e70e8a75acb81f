import { join } from "node:path";
import type { Duplex } from "node:stream";
import { Engine, type GuestFiles, type Sandbox } from "@atoll/engine";
import { ServerSecret } from "@atoll/guard";
import {
  CreateSandbox,
  SandboxError,
  type CommandId,
  type CommandInfo,
  type EgressPolicy,
  type EndReason,
  type RunCommand,
  type RunOnce,
  type SandboxId,
  type SandboxInfo,
  type SandboxPage,
  type SandboxUsage,
} from "@atoll/protocol";
import { pino, type Logger } from "pino";
import type { Command } from "../commands/command.ts";
import { EventJournal, type NewEvent } from "../events/event-journal.ts";
import { SandboxMonitor } from "../monitor/sandbox-monitor.ts";
import { ServerAlerts } from "../monitor/server-alerts.ts";
import type { CheckpointArchive } from "../persistence/checkpoint-archive.ts";
import { noPersistence } from "../persistence/persistence-options.ts";
import { PersistentSandboxes } from "../persistence/persistent-sandboxes.ts";
import { idempotencyMark, IdempotentCalls, type IdempotencyMark } from "../support/idempotent-calls.ts";
import { assertSupported } from "./idle-clock.ts";
import { commandEnded, commandStarted, sandboxEvent } from "./journal-events.ts";
import { logRepairs } from "./log-repairs.ts";
import { LostRuns } from "./lost-runs.ts";
import { ManagedSandbox } from "./managed-sandbox.ts";
import type { Caller, SandboxManagerOptions } from "./manager-options.ts";
import { OneOffRun } from "./one-off-run.ts";
import { PauseResume } from "./pause-resume.ts";
import { SandboxAccess } from "./sandbox-access.ts";
import { SandboxChanges } from "./sandbox-changes.ts";
import { SandboxCreator } from "./sandbox-creator.ts";
import { SandboxForks } from "./sandbox-forks.ts";
import { egressTerms, SandboxIsolation } from "./sandbox-isolation.ts";
import { refuseEgress, serverLabel } from "./sandbox-launcher.ts";
import type { SandboxQuery } from "./sandbox-page.ts";
import { SandboxRegistry } from "./sandbox-registry.ts";
import { SandboxRollbacks, recoverRollback } from "./sandbox-rollbacks.ts";
import { loadSettings, type SandboxSettings } from "./sandbox-settings.ts";
import { issueTokenAgain } from "./sandbox-token.ts";
import { ServerAudit } from "./server-audit.ts";
import { timeOut } from "./time-out.ts";
import { TypeStripper } from "./type-stripper.ts";

const asked: EndReason = { kind: "asked", message: "it was killed on request" };

/**
 * Owns everything the server has: sandboxes, their commands, the journal of events and the audit log. Every operation
 * goes through it; it does not depend on HTTP. What is stored outlives it: the next one on the same data directory
 * continues every sandbox and every running command.
 */
export class SandboxManager {
  readonly events: EventJournal;
  readonly audit: ServerAudit;
  readonly engine: Engine;
  readonly pauseResume: PauseResume;
  readonly forks: SandboxForks;
  readonly persistent: PersistentSandboxes;
  readonly access: SandboxAccess;
  readonly changes: SandboxChanges;
  readonly rollbacks: SandboxRollbacks;
  readonly isolation: SandboxIsolation;
  readonly lostRuns: LostRuns;
  readonly monitor: SandboxMonitor;
  readonly alerts: ServerAlerts;
  readonly #options: SandboxManagerOptions;
  readonly #log: Logger;
  readonly #registry = new SandboxRegistry();
  readonly #creates = new IdempotentCalls<ManagedSandbox>();
  readonly #creating = new Set<Promise<unknown>>();
  readonly #creator: SandboxCreator;
  readonly #types = new TypeStripper();
  #closing: Promise<void> | undefined;

  private constructor(
    options: SandboxManagerOptions,
    engine: Engine,
    archive: CheckpointArchive | undefined,
    auditKey: Buffer,
  ) {
    const { dataDir, pool = [], proxyPort, log = pino({ enabled: false }) } = options;
    this.#options = options;
    this.#log = log;
    this.engine = engine;
    this.alerts = new ServerAlerts(options.alerts, log);
    this.events = EventJournal.open(join(dataDir, "events"), {
      ...options.journal,
      onEmit: (event) => {
        options.journal?.onEmit?.(event);
        this.alerts.take(event);
      },
      ownerOf: (id) => this.ownerOf(id),
      onError: (error, { type }) => log.error({ err: error, event: type }, "event not stored"),
    });
    this.audit = ServerAudit.open(auditKey, options, log, (id) => this.access.auditLevelOf(id));
    this.lostRuns = new LostRuns(join(dataDir, "lost-runs"));
    const manage = this.#manage.bind(this);
    this.persistent = new PersistentSandboxes({
      ...(options.persistence ?? noPersistence),
      archive,
      engine,
      registry: this.#registry,
      manage,
      forget: this.#forget.bind(this),
      resume: (id) => this.pauseResume.resumeInTurn(id),
      onEgress: options.onEgress,
      emit: (event) => this.events.emit(event),
      log,
    });
    for (const message of engine.events.recent) this.events.emit(sandboxEvent(message));
    engine.events.listen((message) => this.events.emit(sandboxEvent(message)));
    engine.events.listen((message) => this.isolation.watch(message));
    const { persistent } = this;
    this.access = new SandboxAccess({ registry: this.#registry, persistent });
    const parts = { engine, persistent, find: this.#registry.find.bind(this.#registry), manage };
    this.pauseResume = new PauseResume({ ...parts, proxyPort, log });
    this.changes = new SandboxChanges(parts);
    this.forks = new SandboxForks({ ...parts, onEgress: options.onEgress });
    const reporting = {
      pauseResume: this.pauseResume,
      audit: this.audit,
      emit: (event: NewEvent) => this.events.emit(event),
      log,
    };
    this.rollbacks = new SandboxRollbacks({ ...parts, ...reporting });
    this.isolation = new SandboxIsolation({
      ...reporting,
      get: (id) => this.#registry.get(id),
      changes: this.changes,
      mostLimitHits: options.isolateAfterHits ?? 0,
    });
    this.monitor = new SandboxMonitor(options.monitor ?? {}, {
      ...reporting,
      engine,
      kill: (id, reason) => this.kill(id, reason),
    });
    this.#creator = new SandboxCreator({ ...parts, pool, proxyPort, onEgress: options.onEgress, log });
  }

  /** Opens the data directory, and continues everything that an earlier server left. */
  static async open(options: SandboxManagerOptions): Promise<SandboxManager> {
    let onReady: () => void = () => undefined;
    const ready = new Promise<void>((resolve) => (onReady = resolve));
    const { dataDir, guestPath, runscPath, engineOptions, onEgress } = options;
    const engine = await Engine.open({
      ...engineOptions,
      dataDir,
      guestPath,
      ...(runscPath === undefined ? {} : { runscPath }),
      onEgress: (id) => async (ask) => {
        // A sandbox of an earlier server may ask before its policy was read.
        await ready;
        return onEgress?.(id)(ask) ?? refuseEgress(ask);
      },
    });
    try {
      const archive = await options.persistence?.openArchive(engine);
      const secret = await ServerSecret.load(dataDir);
      const manager = new SandboxManager(options, engine, archive, secret.keyFor("audit log"));
      logRepairs(engine.repairs, manager.#log);
      await Promise.all(engine.list().map(({ id }) => manager.#restore(engine.get(id))));
      onReady();
      manager.#creator.pool.start();
      return manager;
    } catch (error) {
      await engine.close();
      throw error;
    }
  }

  /**
   * Creates a sandbox and resolves when it runs. The same idempotency key with the same request returns the same
   * sandbox and token.
   */
  async create(request: CreateSandbox, by: Caller): Promise<{ sandbox: SandboxInfo; token: string }> {
    const { idempotencyKey } = by;
    const mark = idempotencyKey === undefined ? undefined : idempotencyMark(by.keyId, idempotencyKey, request);
    let token: string | undefined;
    const managed = await this.#creates.run(mark, async () => {
      const created = await this.#create(request, by, { mark, isOneOff: false });
      ({ token } = created);
      return created.managed;
    });
    return { sandbox: managed.info(), token: token ?? issueTokenAgain(managed.facts, idempotencyKey ?? "") };
  }

  /** Returns a sandbox, also one of another server after it was located. */
  get(id: SandboxId): SandboxInfo {
    return this.access.get(id);
  }

  ownerOf(id: SandboxId): string | undefined {
    return this.#registry.get(id)?.facts.owner ?? this.persistent.ownerOf(id);
  }

  list(query: SandboxQuery, filter: (sandbox: SandboxInfo) => boolean = () => true): SandboxPage {
    return this.#registry.list(query, filter);
  }

  countOf(owner: string): number {
    return this.#registry.countOf(owner);
  }

  /** Kills a sandbox. Returns true if it existed, and resolves when nothing of it is left. */
  async kill(id: SandboxId, reason: EndReason = asked): Promise<boolean> {
    const managed = this.#registry.get(id);
    if (managed?.facts.persistent !== false) return this.persistent.kill(id, reason);
    await managed.kill(reason);
    this.#forget(managed);
    return true;
  }

  async usage(id: SandboxId): Promise<SandboxUsage> {
    return this.#registry.find(id).sandbox.usage();
  }

  /** Starts a command and resolves when it has started. */
  async run(
    id: SandboxId,
    request: RunCommand,
    options: { idempotencyKey?: string | undefined } = {},
  ): Promise<Command> {
    this.#assertOpen();
    await this.pauseResume.wake(id);
    const managed = this.#registry.find(id);
    managed.clock.touch();
    return managed.commands.run(request, options);
  }

  commands(id: SandboxId): CommandInfo[] {
    return this.#registry.find(id).commands.list();
  }

  command(id: SandboxId, commandId: CommandId, rollbacks?: number): Command {
    return this.#registry.find(id).commands.get(commandId, rollbacks);
  }

  files(id: SandboxId): GuestFiles {
    const managed = this.#registry.find(id);
    managed.clock.touch();
    return managed.sandbox.files;
  }

  /** Connects to a port. The sandbox is not idle while the connection is open. */
  async dial(id: SandboxId, port: number, options: { family?: 4 | 6; signal: AbortSignal }): Promise<Duplex> {
    const leave = await this.access.acquire(id, options.signal);
    try {
      this.access.assertPort(id, port, this.audit);
      await this.pauseResume.wake(id);
      const connection = await this.#registry.find(id).sandbox.dial(port, options);
      connection.once("close", leave);
      return connection;
    } catch (error) {
      leave();
      throw error;
    }
  }

  /** Runs a program in a sandbox of its own; the caller ends it. */
  async runOnce(request: RunOnce, by: Caller): Promise<OneOffRun> {
    const create = CreateSandbox.parse({
      template: request.template,
      ...by.terms,
      timeouts: { lifetimeMs: request.timeoutMs + 60_000 },
    });
    const { managed } = await this.#create(create, by, { mark: by.mark, isOneOff: true });
    const end = async (): Promise<void> => {
      await this.kill(managed.id, { kind: "asked", message: "its one run is over" });
    };
    return OneOffRun.start(request, managed, { types: this.#types, end });
  }

  getEgress(id: SandboxId): EgressPolicy {
    return this.access.settingsOf(id).egress;
  }

  /** Returns the policy with its ceilings: that of the key that set it, and the profile. */
  getEgressTerms(id: SandboxId): Pick<SandboxSettings, "egress" | "egressCeiling" | "profile"> {
    return egressTerms(this.access.settingsOf(id));
  }

  isPortPublic(id: SandboxId, port: number): boolean {
    return this.access.settingsOf(id).publicPorts.includes(port);
  }

  counts(): { sandboxes: number; runningCommands: number; pooled: number } {
    const running = this.#registry.all().map(({ commands }) => commands.runningCount);
    const runningCommands = running.reduce((sum, count) => sum + count, 0);
    return { sandboxes: this.#registry.size, runningCommands, pooled: this.#creator.pool.readyCount };
  }

  /**
   * Stops taking work. Sandboxes and their commands run on for the next server, unless all are to be killed or paused.
   */
  shutdown(options: { killAll?: boolean; pauseAll?: boolean } = {}): Promise<void> {
    this.#closing ??= this.#shutdown(options);
    return this.#closing;
  }

  async #shutdown({ killAll = false, pauseAll = false }: { killAll?: boolean; pauseAll?: boolean }): Promise<void> {
    await Promise.allSettled([...this.#creating, this.#creator.pool.close(), this.#types.close()]);
    this.monitor.close();
    const all = this.#registry.all();
    if (killAll) {
      const reason: EndReason = { kind: "server", message: "the server was stopped together with its sandboxes" };
      await Promise.allSettled(all.map(({ id }) => this.#killAtEnd(id, reason)));
    }
    const left = this.#registry.all();
    if (pauseAll) await this.pauseResume.pauseAll(left);
    await this.persistent.close();
    for (const managed of left) managed.detach();
    await this.engine.close();
    await Promise.all(left.map(({ commands }) => commands.release()));
    this.events.close();
    await this.alerts.close();
    this.audit.log.close();
  }

  async #create(
    request: CreateSandbox,
    by: Caller,
    as: { mark: IdempotencyMark | undefined; isOneOff: boolean },
  ): Promise<{ managed: ManagedSandbox; token: string }> {
    this.#assertOpen();
    by.admit?.();
    assertSupported(request.timeouts, request.driver);
    if (request.persistent) this.persistent.assertSupported(request.driver);
    return this.#track(() => this.#creator.create(request, by, as));
  }

  /** Kills a sandbox at the stop of the server. A persistent one that is stored only loses its local copy. */
  async #killAtEnd(id: SandboxId, reason: EndReason): Promise<void> {
    const isStored = this.#registry.get(id)?.facts.persistent === true && !this.persistent.has(id);
    if (!isStored) await this.kill(id, reason).catch((error: unknown) => this.#log.error({ err: error }, "not killed"));
    if (this.#registry.get(id) !== undefined) await this.persistent.drop(id, reason.message);
  }

  async #restore(sandbox: Sandbox): Promise<void> {
    try {
      await recoverRollback(sandbox);
      const facts = await loadSettings(sandbox);
      if (facts === undefined || facts.isOneOff) {
        if (facts === undefined && sandbox.record.labels[serverLabel] === undefined) return;
        await this.lostRuns.add(facts?.idempotency);
        await sandbox.kill({ kind: "server", message: "the server stopped before the sandbox was handed out" });
        return;
      }
      const managed = this.#manage(sandbox, facts, { hasEarlierCommands: true });
      if (facts.idempotency !== undefined) this.#creates.restore(facts.idempotency, managed);
      // A sandbox that may run is blocked until this server is known to have its lease. One whose pause was interrupted
      // has a container as well: its commands are restored when it answers.
      const mayBeBlocked = sandbox.state === "running" || sandbox.state === "pausing";
      if (facts.persistent) managed.clock.stop();
      // The guest of a frozen sandbox does not answer, so its commands are restored when it is released.
      if (facts.isolated !== undefined && mayBeBlocked) return void this.isolation.finish(managed.id);
      if (!facts.persistent || !mayBeBlocked) await managed.restoreCommands();
    } catch (error) {
      // A sandbox that cannot be read may still be needed: it is left alone, and does not keep the server from
      // starting.
      this.#log.error({ err: error, sandboxId: sandbox.id }, "sandbox not restored");
    }
  }

  #manage(sandbox: Sandbox, facts: SandboxSettings, { hasEarlierCommands = false } = {}): ManagedSandbox {
    const { keptCommands = 200, keptLogBytes = 512 * 1024 * 1024, environment = {} } = this.#options;
    const managed = new ManagedSandbox({
      sandbox,
      facts,
      hasEarlierCommands,
      keptCommands,
      keptLogBytes,
      environment,
      logger: this.#log.child({ sandboxId: sandbox.id }),
      onStart: (command) => this.events.emit(commandStarted(command)),
      onEnd: (command) => {
        this.events.emit(commandEnded(command));
        if (command.signal === "SIGSYS") this.isolation.report(sandbox.id, "seccomp_kill", command.argv.join(" "));
      },
      storeSettings: async (changed) => {
        if (changed.persistent) await this.persistent.storeSettings(sandbox.id, changed);
      },
      location: () => {
        const server = this.#options.persistence?.self();
        if (facts.persistent) return this.persistent.locationOf(sandbox.id);
        return server === undefined ? {} : { server };
      },
      onTimeout: (timedOut, which) => {
        const { pauseResume, audit } = this;
        void timeOut(timedOut, which, { pauseResume, audit, log: this.#log, kill: this.kill.bind(this) });
      },
    });
    this.#registry.add(managed);
    this.monitor.watch(managed);
    return managed;
  }

  #forget(managed: ManagedSandbox): void {
    if (this.#registry.get(managed.id) === managed) this.monitor.forget(managed.id);
    const { idempotency } = managed.facts;
    if (this.#registry.remove(managed) && idempotency !== undefined) this.#creates.forget(idempotency);
  }

  #track<T>(work: () => Promise<T>): Promise<T> {
    const tracked = work().finally(() => this.#creating.delete(tracked));
    this.#creating.add(tracked);
    return tracked;
  }

  #assertOpen(): void {
    if (this.#closing === undefined) return;
    throw new SandboxError("unavailable", "Cannot accept work: the server stops", {
      suggestion: "Try again after the server has restarted.",
    });
  }
}
