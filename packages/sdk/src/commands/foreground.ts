import { CommandLine, routes, SandboxError, websocketProtocol, type RouteName } from "@atoll/protocol";
import type { CommandInfo } from "@atoll/protocol";
import { backoffMs, later, pause } from "../http/backoff.ts";
import { fromBase64 } from "../http/base64.ts";
import type { CallInput } from "../http/http.ts";
import { readReply } from "../http/lenient.ts";
import { readLines } from "../http/ndjson.ts";
import { randomKey } from "../http/random-key.ts";
import { CollectedOutput } from "./collected-output.ts";
import { CommandChannel } from "./command-channel.ts";
import { defaultMaxOutputBytes, emitOutput, type FollowOptions, type Wire } from "./command-handle.ts";
import { commandResult, type CommandResult } from "./command-result.ts";
import { OutputCursor } from "./output-cursor.ts";
import type { OutputEvent } from "./output-event.ts";

/**
 * A server sends heartbeats at most 30 seconds apart; silence for longer than this means that the connection is dead.
 */
const silenceMs = 3 * websocketProtocol.heartbeatMs;

/** How many answers in a row may break off without any new output. */
const maxBrokenAnswers = 20;

/** How long a run whose caller has left is followed, to learn what must be ended. */
const orphanMs = 30_000;

type StreamingRoute = Extract<RouteName, "runCommand" | "runOnce">;

/**
 * Runs a command to its end over one request that streams. When the stream breaks, a command that has started is
 * followed over the socket from the byte that it had reached; a request for one that may or may not have started is
 * repeated under the same key, so that the command starts once. A caller that aborts leaves at once, and the command is
 * killed.
 */
export class ForegroundRun<Name extends StreamingRoute> {
  readonly #wire: Wire;
  readonly #name: Name;
  readonly #input: CallInput<Name>;
  readonly #options: FollowOptions;
  readonly #output: CollectedOutput;
  readonly #cursor = new OutputCursor(0);
  #command: CommandInfo | undefined;
  #hasStarted: (command: CommandInfo) => void = () => undefined;
  readonly #started = new Promise<CommandInfo>((resolve) => {
    this.#hasStarted = (command) => {
      this.#command = command;
      resolve(command);
    };
  });

  constructor(wire: Wire, name: Name, input: CallInput<Name>, options: FollowOptions) {
    this.#wire = wire;
    this.#name = name;
    this.#input = { ...input, accept: "application/x-ndjson", idempotencyKey: randomKey() };
    this.#options = options;
    this.#output = new CollectedOutput(options.maxOutputBytes ?? defaultMaxOutputBytes);
  }

  async result(signal: AbortSignal | undefined): Promise<CommandResult> {
    signal?.throwIfAborted();
    const left = new AbortController();
    const work = this.#run(left.signal);
    let onAbort: () => void = () => undefined;
    const aborted = new Promise<never>((_, reject) => {
      onAbort = () => reject(signal?.reason as Error);
      signal?.addEventListener("abort", onAbort, { once: true });
    });
    try {
      const result = await Promise.race([work, aborted]);
      // The result is complete, so the server need not keep the sandbox that was made for this run.
      if (this.#name === "runOnce") void this.#endRun().catch(() => undefined);
      return result;
    } catch (error) {
      void this.#abandon(work, left);
      throw error;
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  async #run(signal: AbortSignal): Promise<CommandResult> {
    for (let attempt = 0; ; attempt += 1) {
      const { at } = this.#cursor;
      const end = await this.#readOnce(signal);
      if (end !== undefined) return commandResult(end, this.#output);
      if (this.#cursor.at > at) attempt = 0;
      if (attempt >= maxBrokenAnswers)
        throw new SandboxError("unavailable", "Cannot run: every answer of the server breaks off");
      if (this.#command !== undefined && this.#name === "runCommand") return this.#carryOn(this.#command, signal);
      await pause(backoffMs(attempt), signal);
    }
  }

  /** Resolves with `undefined` if the stream broke. */
  async #readOnce(signal: AbortSignal): Promise<CommandInfo | undefined> {
    const body = await this.#wire.http.body(this.#name, { ...this.#input, signal });
    const lines = readLines(body, silenceMs);
    let end: CommandInfo | undefined;
    try {
      end = await this.#readToEnd(lines);
      return end;
    } finally {
      if (end === undefined) await lines.return();
      else void finish(lines);
    }
  }

  async #readToEnd(lines: AsyncGenerator<unknown, void, undefined>): Promise<CommandInfo | undefined> {
    for (;;) {
      const line = await nextLine(lines);
      if (line === undefined || line.type === "shutdown" || line.type === "refused") return undefined;
      if (line.type === "started") this.#hasStarted(line.command);
      else if (line.type === "ended") {
        await this.#flush();
        return line.command;
      } else if (line.type === "dropped") await this.#take(this.#cursor.takeDropped(line.at, line.bytes));
      else if (line.type !== "heartbeat") {
        await this.#take(this.#cursor.take(line.type, line.at, line.offset, bytesOf(line)));
      }
    }
  }

  async #carryOn(command: CommandInfo, signal: AbortSignal): Promise<CommandResult> {
    const channel = new CommandChannel(this.#wire.socket, command, this.#cursor);
    try {
      for (;;) {
        const event = await channel.next(signal);
        if (event === undefined) throw new Error("the events of a command stopped before its end");
        if (event.type === "ended") {
          await this.#flush();
          return commandResult(event.command, this.#output);
        }
        await this.#take(event);
      }
    } finally {
      channel.close();
    }
  }

  async #flush(): Promise<void> {
    await emitOutput(this.#options, "stdout", this.#cursor.flush("stdout"));
    await emitOutput(this.#options, "stderr", this.#cursor.flush("stderr"));
  }

  async #take(event: OutputEvent | undefined): Promise<void> {
    if (event === undefined || event.type === "ended") return;
    this.#output.add(event);
    await this.#options.onOutput?.(event);
    if (event.type !== "dropped") await emitOutput(this.#options, event.type, event.text);
  }

  /** Removes the run, whose result is not asked for again, with its sandbox. No other run has this key. */
  async #endRun(): Promise<void> {
    const { idempotencyKey = "" } = this.#input;
    await this.#wire.http.call("endRun", { idempotencyKey });
  }

  /** Ends the command as soon as its id is known: no other client has the id, so the command would run on unseen. */
  async #abandon(work: Promise<CommandResult>, left: AbortController): Promise<void> {
    const giveUp = later(orphanMs, () => left.abort(new Error("the caller has left")));
    try {
      const over = work.then(
        () => undefined,
        () => this.#command,
      );
      const command = await Promise.race([this.#started, over]);
      if (command === undefined) return;
      const { sandboxId, id: commandId } = command;
      // A sandbox that was made for this run is removed with it.
      if (this.#name === "runOnce") await this.#endRun();
      else {
        await this.#wire.http.call("signalCommand", {
          params: { id: sandboxId, commandId },
          body: { signal: "SIGKILL" },
        });
      }
    } catch {
      // The caller has left, so the error has no receiver; the sandbox's own limits end what is left.
    } finally {
      giveUp();
      left.abort(new Error("the caller has left"));
    }
  }
}

/**
 * Reads the rest of an answer whose result is complete, so that its connection can serve the next request. No caller
 * waits for it.
 */
async function finish(lines: AsyncGenerator<unknown, void, undefined>): Promise<void> {
  try {
    while ((await lines.next()).done !== true);
  } catch {
    // The answer was complete before it broke off.
  }
}

async function nextLine(lines: AsyncGenerator<unknown, void, undefined>): Promise<CommandLine | undefined> {
  try {
    const { done, value } = await lines.next();
    return done === true ? undefined : readReply(CommandLine, value, routes.runCommand.path);
  } catch (error) {
    if (error instanceof SandboxError && error.code !== "unavailable") throw error;
    return undefined;
  }
}

function bytesOf(line: { text?: string | undefined; base64?: string | undefined }): Uint8Array {
  if (line.text !== undefined) return new TextEncoder().encode(line.text);
  return fromBase64(line.base64 ?? "");
}
