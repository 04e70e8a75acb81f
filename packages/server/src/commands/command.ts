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

/** Between two attempts to store what the disk did not take. The process waits meanwhile. */
const storeAgainMs = 1_000;

export interface CommandOptions {
  stored: StoredCommand;
  /** Of a command that has ended the log is opened when somebody reads it. */
  log: CommandLog | (() => Promise<CommandLog>);
  store: CommandStore;
  /** How often its sandbox was rolled back before. */
  rollbacks: number;
  logger: Logger;
  /** Called once, after the end was stored. */
  onEnd: (command: Command) => void;
}

/**
 * One command: its output goes to its log before the guest may forget it, its end is stored before anybody is told. Any
 * number of clients can follow it, from any byte; it needs none.
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
  /** Aborts when nothing of this command may be stored any more: its sandbox is being removed, or this server goes. */
  #letGo = new AbortController();
  /** Aborts when those who wait are to wait no longer; there is a new one then. */
  #patience = forManyWaiters();
  /** Everybody who keeps account of the command knows of its end. */
  #isOver: boolean;
  /** Set when this server goes: nobody here learns the end any more. */
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

  /** Up to where its output is stored, while it runs. */
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
      // Whoever has read the log knows better than the record, which cannot know what the disk has lost.
      droppedBytes: Math.max(hasEnded ? stored.droppedBytes : 0, this.#log?.droppedBytes ?? 0),
      stdinBytes: hasEnded ? stored.stdinBytes : (this.#input?.acceptedBytes ?? 0),
      ...(rollbacks === 0 ? {} : { rollbacks }),
    };
  }

  /** Whether somebody reads its output. */
  get isBeingRead(): boolean {
    return this.#readers > 0;
  }

  /** Of one that has ended: what its log has. */
  get keptLogBytes(): number {
    const { stdoutBytes, stderrBytes, droppedBytes } = this.info();
    return this.isRunning ? 0 : stdoutBytes + stderrBytes - droppedBytes;
  }

  /**
   * Of one that has ended: of its output only the length is kept. A crash in the middle leaves a log that is told as
   * dropped, and dropped again when there is too much.
   */
  async dropLog(): Promise<void> {
    const { store } = this.#options;
    const stored = this.#stored;
    if (stored.state === "running" || this.#letGo.signal.aborted) return;
    const dropped = { ...stored, droppedBytes: stored.stdoutBytes + stored.stderrBytes };
    this.#stored = dropped;
    const work = async (): Promise<void> => {
      (this.#log ?? (await this.#opening))?.forget();
      await store.removeLog(this.id);
      if (!this.#letGo.signal.aborted) store.saveEnd(dropped);
    };
    const dropping = work();
    this.#storing = dropping.catch(() => undefined);
    await dropping;
  }

  /** Output from any byte of the common order on, each once; then whatever comes, until the command has ended. */
  async *follow(options: FollowOptions = {}): AsyncGenerator<LogPiece, void, void> {
    this.assertSince(options.rollbacks);
    this.#readers += 1;
    try {
      const log = await this.#readableLog();
      if (this.#detachedBecause !== undefined) log.interrupt(this.#detachedBecause);
      using signal = firstToAbort(options.signal, options.follow === false ? undefined : this.#patience.signal);
      yield* followLog(log, { ...options, signal });
    } finally {
      this.#readers -= 1;
    }
  }

  /** Throws `rolled_back` to whoever has bytes of it from before its sandbox was rolled back. */
  assertSince(rollbacks: number | undefined): void {
    if (rollbacks !== undefined && rollbacks !== this.#options.rollbacks) throw rolledBack(this.#stored.sandboxId);
  }

  /**
   * Resolves when the end is stored, or the command was removed with its sandbox; rejects when this server goes before.
   */
  async waitEnd(signal?: AbortSignal): Promise<CommandInfo> {
    while (!this.#isOver) {
      if (this.#detachedBecause !== undefined) throw this.#detachedBecause;
      using either = firstToAbort(signal, this.#patience.signal);
      await this.#bell.wait(either);
    }
    return this.info();
  }

  /**
   * It should have ended and its guest is silent: whoever waits is told so and may ask again. The command is what it
   * was.
   */
  leaveWaiting(because: SandboxError): void {
    const patience = this.#patience;
    this.#patience = forManyWaiters();
    patience.abort(because);
  }

  /**
   * Resolves with the offset where input goes on. Bytes below the accepted offset are passed over, also after the end;
   * a gap is `invalid_argument`.
   */
  async writeStdin(data: Uint8Array, options: InputOptions = {}): Promise<number> {
    const { writer, offset } = options;
    if (!this.isRunning && offset !== undefined) {
      // Whoever did not hear that it was taken sends it again, and the command may have ended with it.
      const accepted = (await this.nextOffset(writer)) ?? 0;
      if (offset + data.byteLength <= accepted) return accepted;
    }
    return this.#openInput("write to").write(data, options);
  }

  /**
   * The offset where input goes on: this writer's, or everybody's. `undefined`: not known before its sandbox runs
   * again, or ever, if it was lost.
   */
  async nextOffset(writer?: string): Promise<number | undefined> {
    const stored = this.#stored;
    if (writer === undefined || this.#input !== undefined || stored.state !== "exited")
      return this.offsetAtHand(writer);
    // It ended under a server before this one. Few ever ask, so it is read for each.
    const writers = await InputWriters.open(this.#options.store.inputFile(this.id), stored.stdinBytes);
    return writers.acceptedFrom(writer);
  }

  /** The same, as far as it is known without asking the disk: always while this server gives it input. */
  offsetAtHand(writer?: string): number | undefined {
    return writer === undefined ? this.info().stdinBytes : this.#input?.nextOffset(writer);
  }

  /** Resolves when more input has been accepted, whoever wrote it. */
  inputAccepted(signal: AbortSignal): Promise<void> {
    return this.#inputBell.wait(signal);
  }

  /** Idempotent, also after the end. Resolves with the offset of the end. */
  async closeStdin(options: InputOptions = {}): Promise<number> {
    const { writer, offset } = options;
    const goesOnAt = async (): Promise<number> =>
      Math.max((await this.nextOffset(writer)) ?? 0, writer === undefined ? 0 : (offset ?? 0));
    if (!this.isRunning) return goesOnAt();
    try {
      return await this.#openInput("close").close(options);
    } catch (error) {
      // Closed by its reader, or by the end of the process.
      if (isSandboxError(error, "invalid_state") && !this.#letGo.signal.aborted) return goesOnAt();
      throw error;
    }
  }

  /** To the whole process group; to a command that has ended it does nothing. */
  async signal(name: SignalName = "SIGTERM"): Promise<void> {
    if (this.isRunning) await this.#process?.kill(name);
  }

  async resize(size: { rows: number; cols: number }): Promise<void> {
    if (!this.#stored.hasPty) {
      throw new SandboxError("invalid_state", `Cannot resize command ${this.id}: it has no terminal`);
    }
    if (this.isRunning) await this.#process?.resize(size);
  }

  /** Begins to store what the process does. Called once. `writers`: those of servers before this one. */
  attach(process: GuestProcess, writers = new InputWriters(this.#options.store.inputFile(this.id))): void {
    this.#process = process;
    this.#input = new CommandInput(process, writers, () => this.#inputBell.ring());
    this.#kept = this.#keep(process);
  }

  /** The end cannot be known. */
  async lose(because: string): Promise<void> {
    if (!this.isRunning) return;
    await this.#end({ ...this.#facts(), state: "lost", because });
  }

  /** The sandbox is being removed with everything that is stored: from now on only memory is changed. */
  async abandon(because: string): Promise<void> {
    this.#letGo.abort(new SandboxError("sandbox_ended", `Cannot carry on with command ${this.id}: ${because}`));
    await this.#storing;
    if (!this.isRunning) return;
    this.#stored = { ...this.#facts(), state: "lost", because };
    await this.#close();
  }

  /**
   * What is stored of it is replaced by what was at an earlier time: nothing is stored or read from now on, and whoever
   * follows it is told `reason`.
   */
  async cut(reason: Error): Promise<void> {
    this.#letGo.abort(reason);
    await this.#storing;
    this.#detachedBecause = reason;
    this.#log?.interrupt(reason);
    this.#bell.ring();
  }

  /**
   * The command goes on without this server: nothing is stored or told from now on, and whoever waits is told `reason`.
   */
  detach(reason: Error): void {
    this.#letGo.abort(reason);
    if (!this.isRunning) return;
    this.#detachedBecause = reason;
    this.#openLog.interrupt(reason);
    this.#bell.ring();
  }

  /** After `detach`, and after the channel to the sandbox was closed. */
  async release(): Promise<void> {
    await this.#kept;
    await this.#log?.release();
  }

  async #keep(process: GuestProcess): Promise<void> {
    const { logger } = this.#options;
    const log = this.#openLog;
    try {
      // What is stored the guest may forget.
      await process.consume((piece) => this.#untilStored(() => log.append(piece)));
      await this.#end({ ...this.#facts(), ...endOf(await process.wait()) });
      process.release();
    } catch (error) {
      if (this.#letGo.signal.aborted) return;
      const because = error instanceof Error ? error.message : String(error);
      await this.lose(because).catch((cause: unknown) => {
        if (!this.#letGo.signal.aborted) logger.error({ err: cause, commandId: this.id }, "command end not stored");
      });
    }
  }

  async #end(ended: EndedCommand): Promise<void> {
    await this.#untilStored(async () => {
      this.#options.store.saveEnd(ended);
      // In one step with storing it: whoever waits for what is being stored sees the end, and does not make up another.
      this.#stored = ended;
    });
    await this.#close();
    // Whoever waits is told already: what this server knows outlives it.
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

  /** A full disk makes the process wait and loses nothing. */
  async #untilStored(store: () => Promise<void>): Promise<void> {
    const { signal } = this.#letGo;
    for (;;) {
      signal.throwIfAborted();
      try {
        const stored = store();
        this.#storing = stored.catch(() => undefined);
        return await stored;
      } catch (error) {
        signal.throwIfAborted();
        this.#options.logger.warn({ err: error, commandId: this.id }, "command output not stored, trying again");
        await delay(storeAgainMs, undefined, { signal });
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
        `Cannot ${what} the input of command ${this.id}: it was started without`,
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

/** Any number of clients may wait for one command, each with a listener of its own. */
function forManyWaiters(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal);
  return controller;
}
