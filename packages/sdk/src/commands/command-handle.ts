import { SandboxError, type CommandId, type CommandInfo, type SignalName } from "@atoll/protocol";
import { CommandExitError } from "../errors.ts";
import type { Http } from "../http/http.ts";
import { untilAborted } from "../http/until-aborted.ts";
import type { Socket } from "../socket/socket.ts";
import { CollectedOutput } from "./collected-output.ts";
import { CommandChannel } from "./command-channel.ts";
import { commandResult, type CommandResult } from "./command-result.ts";
import { OutputCursor } from "./output-cursor.ts";
import type { OutputData, OutputDropped, OutputEvent } from "./output-event.ts";
import { StdinSender } from "./stdin-sender.ts";

/** How many bytes of each stream a result has unless the caller asks for another number. */
export const defaultMaxOutputBytes = 16 * 1024 * 1024;

export interface FollowOptions {
  onStdout?: ((text: string) => void | Promise<void>) | undefined;
  onStderr?: ((text: string) => void | Promise<void>) | undefined;
  /** Called with both streams in their common order, as bytes, and with the gaps in them. */
  onOutput?: ((event: OutputData | OutputDropped) => void | Promise<void>) | undefined;
  /** How many bytes of each stream the result has. */
  maxOutputBytes?: number | undefined;
}

export interface WaitOptions {
  signal?: AbortSignal | undefined;
  /** Whether an exit code other than 0 throws `CommandExitError`. */
  check?: boolean | undefined;
}

/**
 * One reading of the output for a result, shared by all callers that wait for it. It ends when the last of them has
 * left.
 */
interface Collection {
  result: Promise<CommandResult>;
  isSettled: boolean;
  holders: number;
  stop: AbortController;
}

/** The parts of a client that a handle needs. */
export interface Wire {
  http: Http;
  socket: Socket;
}

/**
 * A command that runs, or ran, in a sandbox. It lives on the server: dropping the handle, the connection or this
 * program does not end it, and `commands.connect` gives a new handle. A program does not end while it follows one.
 *
 * @example
 * const command = await sandbox.commands.run("for i in 1 2 3; do printf $i; done", { background: true });
 * let seen = "";
 * for await (const event of command) if (event.type === "stdout") seen += event.text;
 * console.log(seen); // 123
 */
export class CommandHandle implements AsyncIterable<OutputEvent> {
  readonly id: CommandId;
  readonly #wire: Wire;
  readonly #from: number;
  readonly #maxOutputBytes: number;
  readonly #stdin: StdinSender;
  #info: CommandInfo;
  #collection: Collection | undefined;
  readonly #channels = new Set<CommandChannel>();
  /** Carries input while there is no reader, and discards the output. */
  #drain: CommandChannel | undefined;
  #drainedTo: number;
  #closed: SandboxError | undefined;

  /** `signal` ends the calls of the callbacks. */
  constructor(
    wire: Wire,
    command: CommandInfo,
    from: number,
    options: FollowOptions & { signal?: AbortSignal | undefined } = {},
  ) {
    this.id = command.id;
    this.#wire = wire;
    this.#info = command;
    this.#from = from;
    this.#drainedTo = command.stdoutBytes + command.stderrBytes;
    this.#maxOutputBytes = options.maxOutputBytes ?? defaultMaxOutputBytes;
    this.#stdin = new StdinSender(() => this.#serveStdin());
    const { onStdout, onStderr, onOutput, signal } = options;
    const isFollowed = [onStdout, onStderr, onOutput].some((callback) => callback !== undefined);
    if (isFollowed && signal?.aborted !== true) this.#hold(this.#collect(options, signal), signal);
  }

  /** What this handle last learned about the command. */
  get command(): CommandInfo {
    return this.#info;
  }

  get pid(): number | undefined {
    return this.#info.pid;
  }

  /**
   * Yields the output from where the handle begins, and the end as the last event. Each loop reads it from the start.
   */
  [Symbol.asyncIterator](): AsyncGenerator<OutputEvent, void, undefined> {
    return this.events();
  }

  /**
   * Works like iterating, with a signal that ends the reading; the command goes on.
   *
   * @example
   * const command = await sandbox.commands.run(["echo", "hi"], { background: true });
   * for await (const event of command.events({ signal: AbortSignal.timeout(60_000) })) {
   *   if (event.type === "ended") console.log(event.command.exitCode); // 0
   * }
   */
  async *events(
    options: { from?: number; signal?: AbortSignal | undefined } = {},
  ): AsyncGenerator<OutputEvent, void, undefined> {
    const channel = this.#open(options.from ?? this.#from);
    try {
      for (;;) {
        const event = await channel.next(options.signal);
        if (event === undefined) return;
        if (event.type === "ended") this.#info = event.command;
        yield event;
      }
    } finally {
      this.#close(channel);
    }
  }

  /**
   * Waits for the end of the command. An abort ends the waiting, not the command.
   *
   * @example
   * const command = await sandbox.commands.run("echo done; exit 3", { background: true });
   * const result = await command.wait();
   * console.log(result.exitCode, result.stdout.trim()); // 3 done
   */
  async wait(options: WaitOptions = {}): Promise<CommandResult> {
    options.signal?.throwIfAborted();
    const collection = this.#collection ?? this.#collect({});
    const leave = this.#hold(collection, options.signal);
    let result: CommandResult;
    try {
      result = await untilAborted(collection.result, options.signal);
    } finally {
      leave();
    }
    if (options.check === true && result.exitCode !== 0) throw new CommandExitError(result);
    return result;
  }

  /**
   * Sends a signal to the command and to all processes in its process group.
   *
   * @example
   * const command = await sandbox.commands.run("sleep 60", { background: true });
   * await command.kill();
   * console.log((await command.wait()).signal); // SIGKILL
   */
  async kill(signal: SignalName = "SIGKILL", options: { signal?: AbortSignal | undefined } = {}): Promise<void> {
    const { id, sandboxId } = this.#info;
    this.#info = await this.#wire.http.call("signalCommand", {
      params: { id: sandboxId, commandId: id },
      body: { signal },
      signal: options.signal,
    });
  }

  /**
   * Sends input; resolves when the server has accepted it. Input arrives once and in order, whatever happens to the
   * connection.
   *
   * @example
   * const cat = await sandbox.commands.run("cat", { background: true, stdin: true });
   * await cat.sendStdin("one line\n");
   * await cat.closeStdin();
   * console.log((await cat.wait()).stdout.trim()); // one line
   */
  async sendStdin(input: string | Uint8Array, options: { signal?: AbortSignal | undefined } = {}): Promise<void> {
    options.signal?.throwIfAborted();
    const accepted = this.#stdin.write(typeof input === "string" ? new TextEncoder().encode(input) : input);
    this.#serveStdin();
    await untilAborted(accepted, options.signal);
  }

  /**
   * Ends the input, so that the command reads an end of file.
   *
   * @example
   * const sort = await sandbox.commands.run("sort | tr '\\n' ' '", { background: true, stdin: true });
   * await sort.sendStdin("b\na\n");
   * await sort.closeStdin();
   * console.log((await sort.wait()).stdout.trim()); // a b
   */
  async closeStdin(options: { signal?: AbortSignal | undefined } = {}): Promise<void> {
    options.signal?.throwIfAborted();
    const accepted = this.#stdin.close();
    this.#serveStdin();
    await untilAborted(accepted, options.signal);
  }

  /**
   * Resizes the terminal.
   *
   * @example
   * const terminal = await sandbox.pty.create({ argv: ["sh", "-c", "read go; stty size"] });
   * await terminal.resize({ rows: 50, cols: 132 });
   * await terminal.sendStdin("go\n");
   * console.log((await terminal.wait()).stdout.includes("50 132")); // true
   */
  async resize(
    size: { rows: number; cols: number },
    options: { signal?: AbortSignal | undefined } = {},
  ): Promise<void> {
    const { id, sandboxId } = this.#info;
    this.#info = await this.#wire.http.call("resizeCommand", {
      params: { id: sandboxId, commandId: id },
      body: size,
      signal: options.signal,
    });
  }

  /**
   * Closes the handle; the command goes on. Callers that still read, wait or write through this handle get an error.
   *
   * @example
   * const server = await sandbox.commands.run("sleep 60", { background: true, onStdout: console.log });
   * server.close();
   * console.log((await sandbox.commands.get(server.id)).state); // running
   */
  close(): void {
    this.#closed ??= new SandboxError("invalid_state", `Cannot follow the command ${this.id}: this handle was closed`, {
      suggestion: "Get a new one from commands.connect",
    });
    this.#stdin.fail(this.#closed);
    for (const channel of this.#channels) this.#close(channel, this.#closed);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  #open(from: number | OutputCursor): CommandChannel {
    if (this.#closed !== undefined) throw this.#closed;
    const channel = new CommandChannel(this.#wire.socket, this.#info, from, this.#stdin);
    this.#channels.add(channel);
    return channel;
  }

  #close(channel: CommandChannel, error?: SandboxError): void {
    this.#channels.delete(channel);
    channel.close(error);
    this.#serveStdin();
  }

  /**
   * Opens a channel for waiting input. A channel that is there for input alone is closed after it, so that the program
   * can end.
   */
  #serveStdin(): void {
    const drain = this.#drain;
    if (!this.#stdin.isPending && drain !== undefined) {
      this.#drain = undefined;
      this.#drainedTo = drain.at;
      this.#close(drain);
    } else if (this.#stdin.isPending && this.#channels.size === 0) {
      this.#drain = this.#open(this.#drainedTo);
      void this.#drainOutput(this.#drain);
    }
  }

  async #drainOutput(channel: CommandChannel): Promise<void> {
    try {
      while ((await channel.next()) !== undefined);
    } catch {
      // The sender reports this error to the writers.
    } finally {
      if (this.#drain === channel) this.#drain = undefined;
      this.#close(channel);
    }
  }

  /** Keeps the collection going until the returned function is called, or the signal aborts. */
  #hold(collection: Collection, signal: AbortSignal | undefined): () => void {
    collection.holders += 1;
    let isHeld = true;
    const leave = () => {
      signal?.removeEventListener("abort", leave);
      if (!isHeld) return;
      isHeld = false;
      collection.holders -= 1;
      if (collection.holders > 0 || collection.isSettled) return;
      collection.stop.abort();
      if (this.#collection === collection) this.#collection = undefined;
    };
    signal?.addEventListener("abort", leave, { once: true });
    // Callers that wait get the error; without this handler an error that no caller waits for would end the program.
    collection.result.then(leave, leave);
    return leave;
  }

  #collect(options: FollowOptions, signal?: AbortSignal): Collection {
    const stop = new AbortController();
    const result = this.#read(options, stop.signal, signal);
    const collection: Collection = { result, isSettled: false, holders: 0, stop };
    const settle = () => {
      collection.isSettled = true;
    };
    result.then(settle, settle);
    this.#collection = collection;
    return collection;
  }

  async #read(options: FollowOptions, stop: AbortSignal, followed?: AbortSignal): Promise<CommandResult> {
    const output = new CollectedOutput(this.#maxOutputBytes);
    const cursor = new OutputCursor(this.#from);
    const channel = this.#open(cursor);
    const callbacks = (): FollowOptions => (followed?.aborted === true ? {} : options);
    try {
      for (;;) {
        const event = await channel.next(stop);
        if (event === undefined) throw new Error("the events of a command stopped before its end");
        output.add(event);
        if (event.type === "ended") {
          await emitOutput(callbacks(), "stdout", cursor.flush("stdout"));
          await emitOutput(callbacks(), "stderr", cursor.flush("stderr"));
          this.#info = event.command;
          return commandResult(event.command, output);
        }
        await callbacks().onOutput?.(event);
        if (event.type !== "dropped") await emitOutput(callbacks(), event.type, event.text);
      }
    } finally {
      this.#close(channel);
    }
  }
}

/** Passes text to the callback of its stream. */
export async function emitOutput(options: FollowOptions, type: "stdout" | "stderr", text: string): Promise<void> {
  if (text !== "") await (type === "stdout" ? options.onStdout : options.onStderr)?.(text);
}
