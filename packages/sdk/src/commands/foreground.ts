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
 * A server sends heartbeats, at the most 30 seconds apart; silence for longer than this means that the connection is
 * dead.
 */
const silenceMs = 3 * websocketProtocol.heartbeatMs;

/** So many answers in a row may break without having brought anything. */
const mostBrokenAnswers = 20;

/** How long a run whose caller has left is followed to learn what must be ended. */
const orphanMs = 30_000;

type StreamingRoute = Extract<RouteName, "runCommand" | "runOnce">;

/**
 * Runs to the end over one request that streams. When the stream breaks, a command that has started is followed over
 * the socket from the very byte; one that may or may not have started is asked for again under the same key, which
 * starts it once. A caller that aborts leaves at once, and the command is killed.
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
      // All of it is here: a sandbox that was made for this run is kept for nobody.
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
      if (attempt >= mostBrokenAnswers)
        throw new SandboxError("unavailable", "Cannot run: every answer of the server breaks");
      if (this.#command !== undefined && this.#name === "runCommand") return this.#carryOn(this.#command, signal);
      await pause(backoffMs(attempt), signal);
    }
  }

  /** `undefined`: the stream broke. */
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
        if (event === undefined) throw new Error("a command's events end with its end");
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

  /** Nobody asks for the result again, and the sandbox goes. The key is this run's alone. */
  async #endRun(): Promise<void> {
    const { idempotencyKey = "" } = this.#input;
    await this.#wire.http.call("endRun", { idempotencyKey });
  }

  /** Nobody else has this command's id, so it would run on unseen: it is ended as soon as it is known. */
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
      // A sandbox that was made for this run goes with it.
      if (this.#name === "runOnce") await this.#endRun();
      else {
        await this.#wire.http.call("signalCommand", {
          params: { id: sandboxId, commandId },
          body: { signal: "SIGKILL" },
        });
      }
    } catch {
      // The caller has left, so there is nobody to tell; the sandbox's own limits end what is left.
    } finally {
      giveUp();
      left.abort(new Error("the caller has left"));
    }
  }
}

/**
 * Reads what is left of an answer that has said everything, so that its connection can serve the next request. Nobody
 * waits for it.
 */
async function finish(lines: AsyncGenerator<unknown, void, undefined>): Promise<void> {
  try {
    while ((await lines.next()).done !== true);
  } catch {
    // Everything was said before it broke.
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
