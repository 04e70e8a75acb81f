import { deadlineAfter, firstToAbort, type CommandLine, type CommandResult, type StdinAccepted } from "@atoll/protocol";
import { assertMayUseTemplate } from "../auth/principal.ts";
import { commandResult } from "../commands/command-result.ts";
import type { Command } from "../commands/command.ts";
import { commandLines } from "./command-lines.ts";
import { LineStream, type Handlers } from "./handlers.ts";
import { OneOffCalls } from "./one-off-calls.ts";
import type { Parts } from "./parts.ts";
import { keyOf } from "./sandbox-handlers.ts";

/** The handlers of commands. A command goes on whatever happens to the request that started it or waits for it. */
export function commandHandlers({ manager, admission }: Parts) {
  const oneOffs = new OneOffCalls(manager, admission);
  return {
    runCommand: async ({ params, body, idempotencyKey, wantsLines, signal, waiting, note }) => {
      const command = await manager.run(params.id, body, { idempotencyKey });
      note({ commandId: command.id, program: command.info().argv[0] });
      if (wantsLines) return commandLines(command, { signal });
      return body.background ? startedOnly(command) : commandResult(command, waiting);
    },
    listCommands: ({ params }) => ({ commands: manager.commands(params.id) }),
    getCommand: ({ params }) => manager.command(params.id, params.commandId).info(),
    waitCommand: async ({ params, query, waiting }) => {
      const command = manager.command(params.id, params.commandId);
      const late = deadlineAfter(query.timeoutMs);
      return command.waitEnd(firstToAbort(waiting, late)).catch((error: unknown) => {
        if (error !== late.reason) throw error;
        return command.info();
      });
    },
    readCommand: ({ params, query, signal }) =>
      commandLines(manager.command(params.id, params.commandId, query.rollbacks), { ...query, signal }),
    writeStdin: async ({ params, query, body, waiting }) => {
      const command = manager.command(params.id, params.commandId);
      const { writer } = query;
      let { offset } = query;
      for await (const piece of body) {
        await command.writeStdin(piece, { signal: waiting, writer, offset });
        if (offset !== undefined) offset += piece.byteLength;
      }
      return inputOf(command, writer);
    },
    closeStdin: async ({ params, query, signal }) => {
      const command = manager.command(params.id, params.commandId);
      await command.closeStdin({ signal, ...query });
      return inputOf(command, query.writer);
    },
    signalCommand: async ({ params, body, note }) => {
      note({ signal: body.signal });
      const command = manager.command(params.id, params.commandId);
      await command.signal(body.signal);
      return command.info();
    },
    resizeCommand: async ({ params, body }) => {
      const command = manager.command(params.id, params.commandId);
      await command.resize(body);
      return command.info();
    },
    runOnce: async ({ body, principal, idempotencyKey, wantsLines, signal, waiting, note }) => {
      const key = keyOf(principal);
      assertMayUseTemplate({ kind: "key", key }, body.template ?? "host", "run once");
      const call = await oneOffs.start(body, key, idempotencyKey);
      note({ sandboxId: call.command.info().sandboxId });
      if (wantsLines) return withEnd(commandLines(call.command, { signal }), call.done, signal);
      try {
        return await commandResult(call.command, waiting);
      } finally {
        await call.done();
      }
    },
    endRun: ({ principal, idempotencyKey }) => oneOffs.end(keyOf(principal), idempotencyKey),
  } satisfies Partial<Handlers>;
}

async function inputOf(command: Command, writer: string | undefined): Promise<StdinAccepted> {
  const { stdinBytes } = command.info();
  const writerBytes = writer === undefined ? undefined : await command.nextOffset(writer);
  return { stdinBytes, ...(writerBytes === undefined ? {} : { writerBytes }) };
}

function startedOnly(command: Command): CommandResult {
  return { command: command.info(), stdout: "", stderr: "", droppedBytes: 0 };
}

/** Calls `end` after the last line, also when the reader leaves in the middle or before it asked for the first line. */
function withEnd(
  stream: LineStream<CommandLine>,
  end: () => Promise<void>,
  signal: AbortSignal,
): LineStream<CommandLine> {
  // A failure is reported to the reader of the lines; when the reader has left, no client is there to get it.
  const leave = (): void => void end().catch(() => undefined);
  if (signal.aborted) leave();
  else signal.addEventListener("abort", leave, { once: true });
  const iterator = stream.lines[Symbol.asyncIterator]();
  const lines: AsyncIterator<CommandLine> = {
    next: async () => {
      const result = await iterator.next().catch(async (error: unknown) => {
        await end();
        throw error;
      });
      if (result.done === true) await end();
      return result;
    },
    return: async () => {
      await end();
      return (await iterator.return?.()) ?? { done: true, value: undefined };
    },
  };
  return new LineStream({ [Symbol.asyncIterator]: () => lines }, stream);
}
