import { setMaxListeners } from "node:events";
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
  /** The number of ended commands that are kept; those that ended first are forgotten first. */
  keptCommands: number;
  /**
   * The limit for the output of one command, and for that of all ended commands together; the output of those that
   * ended first is dropped first.
   */
  keptLogBytes: number;
  /** The environment of every command. The variables of a request are added to it and win. */
  environment: () => Record<string, string>;
  /** How many times the sandbox was rolled back. */
  rollbacks: () => number;
  logger: Logger;
  onStart: (command: CommandInfo) => void;
  onEnd: (command: CommandInfo) => void;
}

/** The time between SIGTERM and SIGKILL at the time limit of a command. */
const killDelayMs = 2_000;

/**
 * The programs that run a shell line, the best first. With its full path a shell is found at once, and does not search
 * for itself either.
 */
const shells = ["/bin/bash", "bash", "sh"];

/** How many stream ids are tried. The guest may still use one that its server has forgotten. */
const mostStreamIdRetries = 16;

/** The commands of one sandbox, including those of earlier servers. */
export class SandboxCommands {
  readonly #options: SandboxCommandsOptions;
  readonly #store: CommandStore;
  readonly #sandboxId: SandboxId;
  /** The commands in the order in which they were started. */
  readonly #commands = new Map<CommandId, Command>();
  readonly #ended = new EndedCommands();
  #calls = new IdempotentCalls<Command>();
  readonly #starting = new Set<Promise<unknown>>();
  /**
   * Running commands of earlier servers in a sandbox that is paused or does not answer. They continue when the sandbox
   * does.
   */
  readonly #suspended: RunningCommand[] = [];
  /** The error that refuses starts from now on. */
  #refusal: SandboxError | undefined;
  #isDetached = false;
  /** Aborts when the sandbox is being killed: starts in progress end, whether or not the guest answers. */
  readonly #killed = new AbortController();
  #restoring: Promise<void> = Promise.resolve();

  constructor(options: SandboxCommandsOptions) {
    // Every command that starts listens to it.
    setMaxListeners(0, this.#killed.signal);
    this.#options = options;
    this.#sandboxId = options.sandbox.id;
    this.#store = new CommandStore(commandsDir(options.sandbox.ownerDir));
  }

  get runningCount(): number {
    let count = 0;
    for (const command of this.#commands.values()) if (command.isRunning) count += 1;
    return count;
  }

  /** The running commands in the order in which they were started. */
  get running(): Command[] {
    return [...this.#commands.values()].filter(({ isRunning }) => isRunning);
  }

  /** True while a command runs that the sandbox has to stay awake for. */
  get hasWork(): boolean {
    for (const { isRunning, stored } of this.#commands.values()) if (isRunning && stored.keepAlive) return true;
    return false;
  }

  /**
   * The streams of commands that the sandbox need not stay awake for, also of those that have ended: processes that
   * they left behind may still run.
   */
  get backgroundStreams(): number[] {
    const background = new Set<number>();
    for (const { stored } of this.#commands.values()) {
      // Another command may have had the same stream id before.
      if (stored.keepAlive) background.delete(stored.streamId);
      else background.add(stored.streamId);
    }
    return [...background];
  }

  list(): CommandInfo[] {
    return [...this.#commands.values()].map((command) => command.info());
  }

  /**
   * Returns a command. `rollbacks` is the number that the caller last saw: with an older one, the command may have been
   * undone by a rollback.
   */
  get(id: CommandId, rollbacks?: number): Command {
    const command = this.#commands.get(id);
    if (command !== undefined) return command;
    if (rollbacks !== undefined && rollbacks !== this.#options.rollbacks()) throw rolledBack(this.#sandboxId);
    throw new SandboxError("not_found", `Cannot find command ${id} of sandbox ${this.#sandboxId}`, {
      details: { sandboxId: this.#sandboxId, commandId: id },
    });
  }

  /** Starts a command and resolves when it has started. The same key with the same request returns the same command. */
  async run(request: RunCommand, options: { idempotencyKey?: string | undefined } = {}): Promise<Command> {
    // The key may belong to a stored command, and a command that is started before all are restored would be taken for
    // a stored one.
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
   * Restores the commands of earlier servers: those that run are continued, and those that cannot be are recorded as
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
    if (sandbox.state === "running" && !sandbox.isSilent && this.#suspended.length === 0) this.#endUnclaimed();
  }

  /** Continues the commands of earlier servers after the sandbox was resumed. */
  async continueSuspended(): Promise<void> {
    const suspended = this.#suspended.splice(0);
    for (const stored of suspended) {
      const command = this.get(stored.id);
      if (!command.isRunning) continue;
      if (this.#isKnown(stored)) await this.#attach(command, stored, command.logPosition);
      else await command.lose("its sandbox was restarted without its memory");
    }
    if (suspended.length > 0) this.#endUnclaimed();
  }

  /**
   * Replaces the commands after a rollback: `swap` puts the stored commands of the checkpoint in place of the current
   * ones. Followers of the current ones get `rolled_back`; `dropStreams` ends what they still wait for in the memory
   * from before.
   */
  async rollBack(dropStreams: () => void, swap: () => Promise<void>): Promise<void> {
    this.#refusal = rolledBack(this.#sandboxId);
    const rolledBackError = this.#refusal;
    const discardAll = (): Promise<unknown> =>
      Promise.allSettled([...this.#commands.values()].map((command) => command.discard(rolledBackError)));
    await discardAll();
    dropStreams();
    await Promise.allSettled(this.#starting);
    // The starts that were in progress have added commands.
    await discardAll();
    await Promise.allSettled([...this.#commands.values()].map((command) => command.release()));
    this.#commands.clear();
    this.#ended.clear();
    this.#suspended.length = 0;
    this.#calls = new IdempotentCalls();
    await swap();
    this.#refusal = undefined;
    await this.restore();
  }

  /** Stops storing because the sandbox is killed. When it resolves, the directory can be removed. */
  async abandon(because: string): Promise<void> {
    this.#refusal = new SandboxError("sandbox_ended", `Cannot start a command: ${because}`);
    const abandonAll = (): Promise<unknown> =>
      Promise.allSettled([...this.#commands.values()].map((command) => command.abandon(because)));
    await abandonAll();
    this.#killed.abort(this.#refusal);
    await Promise.allSettled(this.#starting);
    // The starts that were in progress have added commands.
    await abandonAll();
  }

  /** Stops storing because this server no longer has the sandbox. Callers that wait get `because`. */
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
        // The error of the first shell is thrown: a missing working directory looks the same for all of them.
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
        const isIdTaken = isSandboxError(error, "spawn_failed") && error.details["errno"] === "EEXIST";
        if (!isIdTaken || taken === mostStreamIdRetries) throw error;
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

  /**
   * Returns the deadline after which callers that wait for the end are rejected, because the guest did not end the
   * command in time.
   */
  #overdueOf({ id, startedAtMs, timeoutMs }: RunningCommand): ProcessOptions["overdue"] {
    if (timeoutMs === undefined) return undefined;
    const afterMs = Math.max(0, startedAtMs + timeoutMs + killDelayMs - Date.now());
    return { afterMs, onSilent: (error) => this.#commands.get(id)?.rejectWaiters(error) };
  }

  #begin(stored: RunningCommand, process: GuestProcess): Command {
    const command = this.#add(stored, CommandLog.create(this.#store.logDir(stored.id), stored.logBytes));
    command.attach(process);
    // The start was in progress when this server released the sandbox: the command belongs to the next server.
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
    // A pause that a crash interrupted after the memory was saved may still have to wait for disk space: its commands
    // are restored like those of a paused sandbox. So are those of a guest that does not answer.
    const isPaused = sandbox.state === "paused" || sandbox.state === "pausing";
    if (isPaused || (sandbox.state === "running" && sandbox.isSilent)) {
      this.#add(stored, log);
      this.#suspended.push(stored);
    } else if (sandbox.state === "running" && this.#isKnown(stored)) {
      await this.#attach(this.#add(stored, log), stored, log.position);
    } else if (sandbox.state === "running" && log.endAt === 0) {
      // The guest forgets nothing that was not released. So the earlier server died before it could start the command,
      // and no client knows of it.
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
      await command.lose(`its output cannot be continued: ${because}`);
    }
  }

  /**
   * Ends the processes that are left: they belong to requests that ended with their server, so no client can continue
   * them.
   */
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

  /** Drops logs of ended commands. Each running command has a limit of its own. */
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
  const reason = "reason" in record ? record.reason.message : `the sandbox is ${record.state} and does not have it`;
  return `its sandbox has ended: ${reason}`;
}
