import type { GuestProcess, ProcessOptions, Sandbox } from "@atoll/engine";
import {
  CommandId,
  isSandboxError,
  SandboxError,
  StreamId,
  type CommandInfo,
  type RunCommand,
  type SandboxId,
} from "@atoll/protocol";
import type { Logger } from "pino";
import { idempotencyMark, IdempotentCalls, type IdempotencyMark } from "../support/idempotent-calls.ts";
import { randomId } from "../support/random-id.ts";
import { storageError } from "../support/storage-error.ts";
import { CommandLog } from "./command-log.ts";
import { Command } from "./command.ts";
import { commandsDir } from "./copy-commands.ts";
import { EndedCommands } from "./ended-commands.ts";
import { InputWriters } from "./input-writers.ts";
import { rolledBack } from "./rolled-back.ts";
import { CommandStore, type RunningCommand, type StoredCommand } from "./stored-command.ts";

export interface SandboxCommandsOptions {
  sandbox: Sandbox;
  /** Ended commands beyond this many are forgotten, those first that ended first. */
  keptCommands: number;
  /**
   * Output that is kept of one command, and of all ended ones together; of those that ended first it is dropped first.
   */
  keptLogBytes: number;
  /** In the environment of every command; the request's own comes on top. */
  environment: () => Record<string, string>;
  /** How often the sandbox was rolled back. */
  rollbacks: () => number;
  logger: Logger;
  onStart: (command: CommandInfo) => void;
  onEnd: (command: CommandInfo) => void;
}

/** Between SIGTERM and SIGKILL at the time limit of a command. */
const endingMs = 2_000;

/** What runs a line, the best first. With its path it is found at once, and does not look for itself either. */
const shells = ["/bin/bash", "bash", "sh"];

/** A number that something inside still has, though its server has forgotten it; the next one is tried. */
const mostTakenNumbers = 16;

/** The commands of one sandbox, those of servers before this one included. */
export class SandboxCommands {
  readonly #options: SandboxCommandsOptions;
  readonly #store: CommandStore;
  readonly #sandboxId: SandboxId;
  /** In the order in which they were started. */
  readonly #commands = new Map<CommandId, Command>();
  readonly #ended = new EndedCommands();
  #calls = new IdempotentCalls<Command>();
  readonly #starting = new Set<Promise<unknown>>();
  /** Those of a paused or silent sandbox that a server before this one had: they go on when it does. */
  readonly #asleep: RunningCommand[] = [];
  /** What a start is refused with from now on. */
  #refusal: SandboxError | undefined;
  #isDetached = false;
  /** Aborts when its sandbox is being killed: starts that are under way end, whether or not the guest answers. */
  readonly #killed = new AbortController();
  #restoring: Promise<void> = Promise.resolve();

  constructor(options: SandboxCommandsOptions) {
    this.#options = options;
    this.#sandboxId = options.sandbox.id;
    this.#store = new CommandStore(commandsDir(options.sandbox.ownerDir));
  }

  get runningCount(): number {
    let count = 0;
    for (const command of this.#commands.values()) if (command.isRunning) count += 1;
    return count;
  }

  /** Whether one runs that its sandbox has to stay awake for. */
  get hasWork(): boolean {
    for (const { isRunning, stored } of this.#commands.values()) if (isRunning && stored.keepAlive) return true;
    return false;
  }

  /**
   * The streams of those that their sandbox need not stay awake for, also of those that have ended: what they left
   * behind may run.
   */
  get restingStreams(): number[] {
    const resting = new Set<number>();
    for (const { stored } of this.#commands.values()) {
      // A number may have been another command's before.
      if (stored.keepAlive) resting.delete(stored.streamId);
      else resting.add(stored.streamId);
    }
    return [...resting];
  }

  list(): CommandInfo[] {
    return [...this.#commands.values()].map((command) => command.info());
  }

  /**
   * `rollbacks`: as it was when the caller last heard of the command, which may have been in a past that is no more.
   */
  get(id: CommandId, rollbacks?: number): Command {
    const command = this.#commands.get(id);
    if (command !== undefined) return command;
    if (rollbacks !== undefined && rollbacks !== this.#options.rollbacks()) throw rolledBack(this.#sandboxId);
    throw new SandboxError("not_found", `Cannot find command ${id} of sandbox ${this.#sandboxId}`, {
      details: { sandboxId: this.#sandboxId, commandId: id },
    });
  }

  /** Resolves when it has started. The same key with the same request gives the same command. */
  async run(request: RunCommand, options: { idempotencyKey?: string | undefined } = {}): Promise<Command> {
    // A key may be one of them, and what is stored meanwhile would be taken for one.
    await this.#restoring;
    const { idempotencyKey } = options;
    const mark = idempotencyKey === undefined ? undefined : idempotencyMark(this.#sandboxId, idempotencyKey, request);
    return this.#calls.run(mark, async () => {
      const starting = this.#start(request, mark);
      this.#starting.add(starting);
      try {
        return await starting;
      } finally {
        this.#starting.delete(starting);
      }
    });
  }

  /**
   * Finds the commands of servers before this one: those that run are carried on with, those that cannot be are told as
   * lost.
   */
  restore(): Promise<void> {
    const restoring = this.#restore();
    this.#restoring = restoring.catch(() => undefined);
    return restoring;
  }

  async #restore(): Promise<void> {
    const stored = await this.#store.load();
    for (const command of stored) await this.#restoreOne(command);
    const { sandbox } = this.#options;
    if (sandbox.state === "running" && !sandbox.isSilent && this.#asleep.length === 0) this.#endUnclaimed();
  }

  /** The sandbox was resumed: commands of servers before this one are found in it. */
  async carryOn(): Promise<void> {
    const asleep = this.#asleep.splice(0);
    for (const stored of asleep) {
      const command = this.get(stored.id);
      if (!command.isRunning) continue;
      if (this.#isKnown(stored)) await this.#attach(command, stored, command.logPosition);
      else await command.lose("its sandbox was started afresh, without its memory");
    }
    if (asleep.length > 0) this.#endUnclaimed();
  }

  /**
   * The sandbox was taken back in time: `swap` puts the commands of then in the place of those that are here. Whoever
   * follows one of these is told so; `dropStreams` ends what they still wait for in the memory that was left.
   */
  async rollBack(dropStreams: () => void, swap: () => Promise<void>): Promise<void> {
    this.#refusal = rolledBack(this.#sandboxId);
    const cut = this.#refusal;
    const cutAll = (): Promise<unknown> =>
      Promise.allSettled([...this.#commands.values()].map((command) => command.cut(cut)));
    await cutAll();
    dropStreams();
    await Promise.allSettled(this.#starting);
    // Those whose start was under way.
    await cutAll();
    await Promise.allSettled([...this.#commands.values()].map((command) => command.release()));
    this.#commands.clear();
    this.#ended.clear();
    this.#asleep.length = 0;
    this.#calls = new IdempotentCalls();
    await swap();
    this.#refusal = undefined;
    await this.restore();
  }

  /** Nothing is stored any more when it resolves: the directory can be removed. */
  async abandon(because: string): Promise<void> {
    this.#refusal = new SandboxError("sandbox_ended", `Cannot start a command: ${because}`);
    const abandonAll = (): Promise<unknown> =>
      Promise.allSettled([...this.#commands.values()].map((command) => command.abandon(because)));
    await abandonAll();
    this.#killed.abort(this.#refusal);
    await Promise.allSettled(this.#starting);
    // Those whose start was under way.
    await abandonAll();
  }

  /** Nothing is stored any more, and whoever waits is told why. */
  detach(because = new SandboxError("unavailable", "Cannot start a command: the server stops")): void {
    this.#refusal = because;
    this.#isDetached = true;
    for (const command of this.#commands.values()) command.detach(this.#refusal);
  }

  async release(): Promise<void> {
    await Promise.all([...this.#commands.values()].map((command) => command.release()));
  }

  async #start(request: RunCommand, mark: IdempotencyMark | undefined): Promise<Command> {
    if (request.argv !== undefined) return this.#startProgram(request, request.argv, mark);
    const line = request.shell ?? "";
    let missing: unknown;
    for (const shell of shells) {
      try {
        return await this.#startProgram(request, [shell, "-c", line], mark);
      } catch (error) {
        if (!isSandboxError(error, "spawn_failed") || error.details["errno"] !== "ENOENT") throw missing ?? error;
        // Of the first: a missing directory looks the same for all of them.
        missing ??= error;
      }
    }
    throw missing;
  }

  async #startProgram(request: RunCommand, argv: string[], mark: IdempotencyMark | undefined): Promise<Command> {
    for (let taken = 0; ; taken += 1) {
      this.#assertOpen();
      const stored: RunningCommand = {
        version: 1,
        id: CommandId.parse(`cmd${randomId(20)}`),
        sandboxId: this.#sandboxId,
        streamId: StreamId.parse(this.#options.sandbox.reserveStreamId()),
        ...(request.name === undefined ? {} : { name: request.name }),
        argv,
        cwd: request.cwd,
        user: request.user,
        hasPty: request.pty !== undefined,
        hasStdin: request.stdin || request.pty !== undefined,
        keepAlive: request.keepAlive,
        tags: request.tags,
        logBytes: Math.min(request.logBytes, this.#options.keptLogBytes),
        startedAtMs: Date.now(),
        ...(request.timeoutMs === undefined ? {} : { timeoutMs: request.timeoutMs }),
        ...(mark === undefined ? {} : { idempotency: mark }),
        state: "running",
      };
      this.#saveStart(stored);
      try {
        return this.#begin(stored, await this.#spawn(request, stored));
      } catch (error) {
        if (isSandboxError(this.#refusal, "rolled_back")) throw this.#refusal;
        if (this.#refusal === undefined) await this.#store.remove(stored.id);
        const isTaken = isSandboxError(error, "spawn_failed") && error.details["errno"] === "EEXIST";
        if (!isTaken || taken === mostTakenNumbers) throw error;
      }
    }
  }

  #saveStart(stored: RunningCommand): void {
    try {
      this.#store.saveStart(stored);
    } catch (error) {
      throw storageError(error, "start a command");
    }
  }

  #spawn(request: RunCommand, stored: RunningCommand): Promise<GuestProcess> {
    const { cwd, user, stdin, pty, timeoutMs } = request;
    this.#assertOpen();
    return this.#options.sandbox.spawn(
      {
        argv: stored.argv,
        cwd,
        user,
        stdin,
        env: { ...this.#options.environment(), ...request.env },
        ...(pty === undefined ? {} : { pty }),
        ...(timeoutMs === undefined ? {} : { timeoutMs }),
      },
      { keep: true, streamId: stored.streamId, signal: this.#killed.signal, overdue: this.#overdueOf(stored) },
    );
  }

  /** Those who wait for its end are told when its guest does not end it in time. */
  #overdueOf({ id, startedAtMs, timeoutMs }: RunningCommand): ProcessOptions["overdue"] {
    if (timeoutMs === undefined) return undefined;
    const afterMs = Math.max(0, startedAtMs + timeoutMs + endingMs - Date.now());
    return { afterMs, onSilent: (error) => this.#commands.get(id)?.leaveWaiting(error) };
  }

  #begin(stored: RunningCommand, process: GuestProcess): Command {
    const command = this.#add(stored, CommandLog.create(this.#store.logDir(stored.id), stored.logBytes));
    command.attach(process);
    // Its start was under way when this server let go: it is the next one's.
    if (this.#isDetached && this.#refusal !== undefined) command.detach(this.#refusal);
    this.#options.onStart(command.info());
    return command;
  }

  async #restoreOne(stored: StoredCommand): Promise<void> {
    const { sandbox } = this.#options;
    const logDir = this.#store.logDir(stored.id);
    if (stored.state !== "running") {
      this.#add(stored, () => CommandLog.openEnded(logDir, stored.logBytes, stored));
      return;
    }
    const log = await CommandLog.open(logDir, stored.logBytes);
    // A pause that a crash cut off after the memory was saved may still have to wait for disk space: its commands are
    // restored like those of a paused sandbox. So are those of a guest that does not answer.
    const isAsleep = sandbox.state === "paused" || sandbox.state === "pausing";
    if (isAsleep || (sandbox.state === "running" && sandbox.isSilent)) {
      this.#add(stored, log);
      this.#asleep.push(stored);
    } else if (sandbox.state === "running" && this.#isKnown(stored)) {
      await this.#attach(this.#add(stored, log), stored, log.position);
    } else if (sandbox.state === "running" && log.endAt === 0) {
      // The guest forgets nothing that was not released: its server died before it could start it, and nobody was told
      // of it.
      await this.#store.remove(stored.id);
    } else {
      await this.#add(stored, log).lose(whyLost(sandbox));
    }
  }

  #isKnown({ streamId }: RunningCommand): boolean {
    return this.#options.sandbox.inherited.some(({ id }) => id === streamId);
  }

  async #attach(command: Command, stored: RunningCommand, from: CommandLog["position"]): Promise<void> {
    const { id, streamId } = stored;
    try {
      const process = this.#options.sandbox.attach(streamId, from, { keep: true, overdue: this.#overdueOf(stored) });
      command.attach(process, await InputWriters.open(this.#store.inputFile(id), process.stdinBytes));
    } catch (error) {
      const because = error instanceof Error ? error.message : String(error);
      await command.lose(`its output cannot be carried on with: ${because}`);
    }
  }

  /** What is left belongs to requests that died with their server: nobody can carry on with them. */
  #endUnclaimed(): void {
    const { sandbox } = this.#options;
    for (const { id } of sandbox.inherited) sandbox.killInherited(id);
  }

  #add(stored: StoredCommand, log: CommandLog | (() => Promise<CommandLog>)): Command {
    const command = new Command({
      stored,
      log,
      store: this.#store,
      rollbacks: this.#options.rollbacks(),
      logger: this.#options.logger,
      onEnd: (ended) => {
        this.#options.onEnd(ended.info());
        this.#ended.add(ended);
        this.#forgetOldest();
        this.#dropOldestLogs();
      },
    });
    this.#commands.set(stored.id, command);
    if (!command.isRunning) this.#ended.restore(command);
    if (stored.idempotency !== undefined) this.#calls.restore(stored.idempotency, command);
    return command;
  }

  #forgetOldest(): void {
    if (this.#refusal !== undefined) return;
    for (const { id, stored } of this.#ended.takeSurplus(this.#options.keptCommands)) {
      this.#commands.delete(id);
      if (stored.idempotency !== undefined) this.#calls.forget(stored.idempotency);
      this.#store.remove(id).catch((error: unknown) => {
        this.#options.logger.warn({ err: error, commandId: id }, "ended command not removed");
      });
    }
  }

  /** Those that run are bounded by their own. */
  #dropOldestLogs(): void {
    if (this.#refusal !== undefined) return;
    for (const command of this.#ended.withSurplusLogs(this.#options.keptLogBytes)) {
      command.dropLog().catch((error: unknown) => {
        this.#options.logger.warn({ err: error, commandId: command.id }, "log of an ended command not dropped");
      });
    }
  }

  #assertOpen(): void {
    if (this.#refusal !== undefined) throw this.#refusal;
  }
}

function whyLost(sandbox: Sandbox): string {
  const { record } = sandbox;
  const reason = "reason" in record ? record.reason.message : `the sandbox is ${record.state} and does not know it`;
  return `its sandbox has ended: ${reason}`;
}
