import { setMaxListeners } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import type { GuestProcess } from "@atoll/engine";
import {
  firstToAbort,
  isSandboxError,
  SandboxError,
  type CommandId,
  type CommandInfo,
  type ProcessExit,
  type SignalName,
} from "@atoll/protocol";
import type { Logger } from "pino";
import { Bell } from "../support/bell.ts";
import { CommandInput, type InputOptions } from "./command-input.ts";
import type { CommandLog } from "./command-log.ts";
import { followLog, type FollowOptions, type LogPiece } from "./follow-log.ts";
import { InputWriters } from "./input-writers.ts";
import { rolledBack } from "./rolled-back.ts";
import type { CommandStore, EndedCommand, StoredCommand } from "./stored-command.ts";

/** The time between two attempts to store output that the disk did not accept. The process is blocked until then. */
const storeRetryMs = 1_000;

export interface CommandOptions {
  stored: StoredCommand;
  /** The log. That of an ended command is opened when a client reads it. */
  log: CommandLog | (() => Promise<CommandLog>);
  store: CommandStore;
  /** How many times its sandbox was rolled back before. */
  rollbacks: number;
  logger: Logger;
  /** Called once, after the end was stored. */
  onEnd: (command: Command) => void;
}

/**
 * One command. Its output is in its log before the guest may forget it, and its end is stored before any client is
 * notified. Any number of clients can follow it, from any byte; it runs without any.
 */
export class Command {
  readonly #options: CommandOptions;
  #stored: StoredCommand;
  #log: CommandLog | undefined;
  #opening: Promise<CommandLog> | undefined;
  #process: GuestProcess | undefined;
  #input: CommandInput | undefined;
  #bell = new Bell();
  #inputBell = new Bell();
  /** Aborts when nothing of this command may be stored any more: its sandbox is being removed, or this server stops. */
  #released = new AbortController();
  /** Aborts when callers that wait are to stop waiting; another controller replaces it then. */
  #waiters = forManyWaiters();
  /** True when the end is stored and reported to all parts of the server that count the command. */
  #isOver: boolean;
  /** Set when this server stops: it will not learn the end of the command. */
  #detachedBecause: Error | undefined;
  #readers = 0;
  #kept: Promise<void> = Promise.resolve();
  #storing: Promise<void> = Promise.resolve();

  constructor(options: CommandOptions) {
    this.#options = options;
    this.#stored = options.stored;
    this.#isOver = options.stored.state !== "running";
    if (typeof options.log !== "function") this.#log = options.log;
  }

  get id(): CommandId {
    return this.#stored.id;
  }

  get isRunning(): boolean {
    return this.#stored.state === "running";
  }

  get stored(): StoredCommand {
    return this.#stored;
  }

  /** The position up to which its output is stored, while it runs. */
  get logPosition(): CommandLog["position"] {
    return this.#openLog.position;
  }

  info(): CommandInfo {
    const stored = this.#stored;
    const { rollbacks } = this.#options;
    const hasEnded = stored.state !== "running";
    const { stdoutBytes, stderrBytes } = hasEnded ? stored : this.#openLog.position;
    const pid = hasEnded ? stored.pid : this.#process?.pid;
    return {
      id: stored.id,
      sandboxId: stored.sandboxId,
      ...(stored.name === undefined ? {} : { name: stored.name }),
      argv: stored.argv,
      cwd: stored.cwd,
      user: stored.user,
      hasPty: stored.hasPty,
      hasStdin: stored.hasStdin,
      keepAlive: stored.keepAlive,
      tags: stored.tags,
      ...(pid === undefined ? {} : { pid }),
      state: stored.state,
      exitCode: stored.state === "exited" ? stored.exitCode : null,
      signal: stored.state === "exited" ? stored.signal : null,
      timedOut: stored.state === "exited" && stored.timedOut,
      ...(stored.state === "exited" && stored.outOfMemory ? { outOfMemory: true } : {}),
      ...(stored.state === "lost" ? { lostBecause: stored.because } : {}),
      startedAtMs: stored.startedAtMs,
      ...(hasEnded ? { endedAtMs: stored.endedAtMs } : {}),
      stdoutBytes,
      stderrBytes,
      // A log that was read knows better than the record, which cannot know what the disk has lost.
      droppedBytes: Math.max(hasEnded ? stored.droppedBytes : 0, this.#log?.droppedBytes ?? 0),
      stdinBytes: hasEnded ? stored.stdinBytes : (this.#input?.acceptedBytes ?? 0),
      ...(rollbacks === 0 ? {} : { rollbacks }),
    };
  }

  /** True while a client reads its output. */
  get isBeingRead(): boolean {
    return this.#readers > 0;
  }

  /** The size of the log of an ended command; 0 while it runs. */
  get keptLogBytes(): number {
    const { stdoutBytes, stderrBytes, droppedBytes } = this.info();
    return this.isRunning ? 0 : stdoutBytes + stderrBytes - droppedBytes;
  }

  /**
   * Removes the log of an ended command; only the length of its output is kept. A crash in the middle leaves a log that
   * is reported as dropped, and dropped again when the logs are too large.
   */
  async dropLog(): Promise<void> {
    const { store } = this.#options;
    const stored = this.#stored;
    if (stored.state === "running" || this.#released.signal.aborted) return;
    const dropped = { ...stored, droppedBytes: stored.stdoutBytes + stored.stderrBytes };
    this.#stored = dropped;
    const work = async (): Promise<void> => {
      (this.#log ?? (await this.#opening))?.forget();
      await store.removeLog(this.id);
      if (!this.#released.signal.aborted) store.saveEnd(dropped);
    };
    const dropping = work();
    this.#storing = dropping.catch(() => undefined);
    await dropping;
  }

  /** Yields the output from any byte of the common order onwards, each byte once, until the command has ended. */
  async *follow(options: FollowOptions = {}): AsyncGenerator<LogPiece, void, void> {
    this.assertNotRolledBack(options.rollbacks);
    this.#readers += 1;
    try {
      const log = await this.#readableLog();
      if (this.#detachedBecause !== undefined) log.interrupt(this.#detachedBecause);
      using signal = firstToAbort(options.signal, options.follow === false ? undefined : this.#waiters.signal);
      yield* followLog(log, { ...options, signal });
    } finally {
      this.#readers -= 1;
    }
  }

  /** Throws `rolled_back` if the caller has bytes from before its sandbox was rolled back. */
  assertNotRolledBack(rollbacks: number | undefined): void {
    if (rollbacks !== undefined && rollbacks !== this.#options.rollbacks) throw rolledBack(this.#stored.sandboxId);
  }

  /**
   * Resolves when the end is stored, or the command was removed with its sandbox; rejects when this server stops
   * before.
   */
  async waitEnd(signal?: AbortSignal): Promise<CommandInfo> {
    while (!this.#isOver) {
      if (this.#detachedBecause !== undefined) throw this.#detachedBecause;
      using either = firstToAbort(signal, this.#waiters.signal);
      await this.#bell.wait(either);
    }
    return this.info();
  }

  /**
   * Rejects all callers that wait, because the command should have ended and its guest does not answer. They may call
   * again; the command itself does not change.
   */
  rejectWaiters(because: SandboxError): void {
    const waiters = this.#waiters;
    this.#waiters = forManyWaiters();
    waiters.abort(because);
  }

  /**
   * Resolves with the offset where input continues. Bytes below the accepted offset are skipped, also after the end; a
   * gap is `invalid_argument`.
   */
  async writeStdin(data: Uint8Array, options: InputOptions = {}): Promise<number> {
    const { writer, offset } = options;
    if (!this.isRunning && offset !== undefined) {
      // A client that got no reply sends the same bytes again, and the command may have ended with them.
      const accepted = (await this.nextOffset(writer)) ?? 0;
      if (offset + data.byteLength <= accepted) return accepted;
    }
    return this.#openInput("write to").write(data, options);
  }

  /**
   * Returns the offset where input continues: this writer's, or that of all writers together. `undefined` means that it
   * is not known before the sandbox runs again, or ever, if the command was lost.
   */
  async nextOffset(writer?: string): Promise<number | undefined> {
    const stored = this.#stored;
    if (writer === undefined || this.#input !== undefined || stored.state !== "exited") return this.knownOffset(writer);
    // The command ended under an earlier server. Clients rarely ask, so the file is read each time.
    const writers = await InputWriters.open(this.#options.store.inputFile(this.id), stored.stdinBytes);
    return writers.acceptedFrom(writer);
  }

  /** Returns the same as `nextOffset`, as far as it is in memory: always while this server sends the input. */
  knownOffset(writer?: string): number | undefined {
    return writer === undefined ? this.info().stdinBytes : this.#input?.nextOffset(writer);
  }

  /** Resolves when more input has been accepted, from any writer. */
  inputAccepted(signal: AbortSignal): Promise<void> {
    return this.#inputBell.wait(signal);
  }

  /** Closes the input; repeated calls are allowed, also after the end. Resolves with the offset of the end. */
  async closeStdin(options: InputOptions = {}): Promise<number> {
    const { writer, offset } = options;
    const endOffset = async (): Promise<number> =>
      Math.max((await this.nextOffset(writer)) ?? 0, writer === undefined ? 0 : (offset ?? 0));
    if (!this.isRunning) return endOffset();
    try {
      return await this.#openInput("close").close(options);
    } catch (error) {
      // The input was closed by its reader, or by the end of the process.
      if (isSandboxError(error, "invalid_state") && !this.#released.signal.aborted) return endOffset();
      throw error;
    }
  }

  /** Sends a signal to the whole process group; it does nothing to a command that has ended. */
  async signal(name: SignalName = "SIGTERM"): Promise<void> {
    if (this.isRunning) await this.#process?.kill(name);
  }

  async resize(size: { rows: number; cols: number }): Promise<void> {
    if (!this.#stored.hasPty) {
      throw new SandboxError("invalid_state", `Cannot resize command ${this.id}: it has no terminal`);
    }
    if (this.isRunning) await this.#process?.resize(size);
  }

  /** Begins to store what the process does. It is called once. `writers` are those of earlier servers. */
  attach(process: GuestProcess, writers = new InputWriters(this.#options.store.inputFile(this.id))): void {
    this.#process = process;
    this.#input = new CommandInput(process, writers, () => this.#inputBell.ring());
    this.#kept = this.#keep(process);
  }

  /** Records that the command has ended in an unknown way. */
  async lose(because: string): Promise<void> {
    if (!this.isRunning) return;
    await this.#end({ ...this.#facts(), state: "lost", because });
  }

  /** Stops storing, because the sandbox is being removed with all its files: from now on only memory is changed. */
  async abandon(because: string): Promise<void> {
    this.#released.abort(new SandboxError("sandbox_ended", `Cannot continue with command ${this.id}: ${because}`));
    await this.#storing;
    if (!this.isRunning) return;
    this.#stored = { ...this.#facts(), state: "lost", because };
    await this.#close();
  }

  /**
   * Ends this object because the sandbox is rolled back and its stored commands are replaced by earlier ones: nothing
   * is stored or read from now on, and followers get `reason`.
   */
  async discard(reason: Error): Promise<void> {
    this.#released.abort(reason);
    await this.#storing;
    this.#detachedBecause = reason;
    this.#log?.interrupt(reason);
    this.#bell.ring();
  }

  /**
   * Ends this object while the command itself goes on: nothing is stored or emitted from now on, and callers that wait
   * get `reason`.
   */
  detach(reason: Error): void {
    this.#released.abort(reason);
    if (!this.isRunning) return;
    this.#detachedBecause = reason;
    this.#openLog.interrupt(reason);
    this.#bell.ring();
  }

  /** Closes the log. It is called after `detach`, when the channel to the sandbox was closed. */
  async release(): Promise<void> {
    await this.#kept;
    await this.#log?.release();
  }

  async #keep(process: GuestProcess): Promise<void> {
    const { logger } = this.#options;
    const log = this.#openLog;
    try {
      // The guest may forget what is stored.
      await process.consume((piece) => this.#untilStored(() => log.append(piece)));
      await this.#end({ ...this.#facts(), ...endOf(await process.wait()) });
      process.release();
    } catch (error) {
      if (this.#released.signal.aborted) return;
      const because = error instanceof Error ? error.message : String(error);
      await this.lose(because).catch((cause: unknown) => {
        if (!this.#released.signal.aborted) logger.error({ err: cause, commandId: this.id }, "command end not stored");
      });
    }
  }

  async #end(ended: EndedCommand): Promise<void> {
    await this.#untilStored(async () => {
      this.#options.store.saveEnd(ended);
      // This is set in one step with storing it: code that waits for `#storing` sees the end, and does not make up
      // another.
      this.#stored = ended;
    });
    await this.#close();
    // Clients already have the end: what is stored outlives this server process.
    await this.#options.store.makeDurable(this.id).catch((error: unknown) => {
      this.#options.logger.warn({ err: error, commandId: this.id }, "command end not made durable");
    });
  }

  async #close(): Promise<void> {
    try {
      await this.#openLog.complete();
    } finally {
      this.#isOver = true;
      this.#bell.ring();
      this.#options.onEnd(this);
    }
  }

  /** Retries until the output is stored: a full disk blocks the process and loses nothing. */
  async #untilStored(store: () => Promise<void>): Promise<void> {
    const { signal } = this.#released;
    for (;;) {
      signal.throwIfAborted();
      try {
        const stored = store();
        this.#storing = stored.catch(() => undefined);
        return await stored;
      } catch (error) {
        signal.throwIfAborted();
        this.#options.logger.warn({ err: error, commandId: this.id }, "command output not stored, retrying");
        await delay(storeRetryMs, undefined, { signal });
      }
    }
  }

  #facts(): Omit<EndedCommand & { state: "lost" }, "state" | "because"> {
    const { state, ...start } = this.#stored;
    if (state !== "running") throw new Error(`Command ${this.id} ends once`);
    const { stdoutBytes, stderrBytes, droppedBytes, stdinBytes, pid } = this.info();
    return {
      ...(start as Omit<StoredCommand & { state: "running" }, "state">),
      endedAtMs: Date.now(),
      ...(pid === undefined ? {} : { pid }),
      stdoutBytes,
      stderrBytes,
      droppedBytes,
      stdinBytes,
    };
  }

  get #openLog(): CommandLog {
    if (this.#log === undefined) throw new Error(`The log of command ${this.id} is not open`);
    return this.#log;
  }

  async #readableLog(): Promise<CommandLog> {
    const { log } = this.#options;
    if (typeof log !== "function") return log;
    this.#opening ??= log();
    this.#log = await this.#opening;
    return this.#log;
  }

  #openInput(what: string): CommandInput {
    if (!this.#stored.hasStdin) {
      throw new SandboxError(
        "invalid_state",
        `Cannot ${what} the input of command ${this.id}: it was started without one`,
        {
          suggestion: "Run it with stdin: true.",
        },
      );
    }
    if (this.isRunning && this.#input !== undefined) return this.#input;
    const how = this.isRunning ? "its guest has not answered yet" : "it has ended";
    const code = this.isRunning ? "guest_silent" : "invalid_state";
    throw new SandboxError(code, `Cannot ${what} the input of command ${this.id}: ${how}`);
  }
}

function endOf({
  exitCode,
  signal,
  timedOut,
  outOfMemory,
}: ProcessExit): Pick<
  EndedCommand & { state: "exited" },
  "state" | "exitCode" | "signal" | "timedOut" | "outOfMemory"
> {
  return { state: "exited", exitCode, signal, timedOut, outOfMemory };
}

/** Returns a controller for any number of waiting clients, each with a listener of its own. */
function forManyWaiters(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal);
  return controller;
}
