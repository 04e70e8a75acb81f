import { z } from "zod";
import {
  CommandInfo,
  CommandResult,
  InputWriter,
  ResizeTerminal,
  RunCommand,
  RunOnce,
  SendSignal,
  StdinAccepted,
} from "../command.ts";
import { Command, From, Id } from "./params.ts";
import type { Route } from "./route.ts";

const InputPlace = z.strictObject({
  offset: z.coerce.number().int().min(0).optional(),
  writer: InputWriter.optional(),
});

export const commandRoutes = {
  runCommand: {
    method: "POST",
    path: "/sandboxes/:id/commands",
    summary:
      "Run a command; answers with its end, or at its start with `background`, or as a stream with " +
      "`Accept: application/x-ndjson`",
    verb: "commands",
    params: Id,
    body: RunCommand,
    reply: CommandResult,
    isIdempotent: true,
  },
  listCommands: {
    method: "GET",
    path: "/sandboxes/:id/commands",
    summary: "List the commands of a sandbox",
    verb: "read",
    params: Id,
    reply: z.strictObject({ commands: z.array(CommandInfo) }),
  },
  getCommand: {
    method: "GET",
    path: "/sandboxes/:id/commands/:commandId",
    summary: "Describe one command",
    verb: "read",
    params: Command,
    reply: CommandInfo,
  },
  waitCommand: {
    method: "GET",
    path: "/sandboxes/:id/commands/:commandId/wait",
    summary: "Wait for its end, for a limited time",
    verb: "read",
    params: Command,
    query: z.strictObject({ timeoutMs: z.coerce.number().int().min(0).max(60_000).default(30_000) }),
    reply: CommandInfo,
  },
  readCommand: {
    method: "GET",
    path: "/sandboxes/:id/commands/:commandId/output",
    summary: "Replay its output from any byte and follow it",
    verb: "read",
    params: Command,
    query: From,
    reply: "ndjson",
  },
  writeStdin: {
    method: "POST",
    path: "/sandboxes/:id/commands/:commandId/stdin",
    summary: "Send input; `offset` makes a retry safe, and counts the bytes of `writer` only if one is named",
    verb: "commands",
    params: Command,
    query: InputPlace,
    body: "bytes",
    reply: StdinAccepted,
  },
  closeStdin: {
    method: "DELETE",
    path: "/sandboxes/:id/commands/:commandId/stdin",
    summary: "End its input, when all below `offset` is there",
    verb: "commands",
    params: Command,
    query: InputPlace,
    reply: StdinAccepted,
  },
  signalCommand: {
    method: "POST",
    path: "/sandboxes/:id/commands/:commandId/signal",
    summary: "Send a signal to its process group",
    verb: "commands",
    params: Command,
    body: SendSignal,
    reply: CommandInfo,
  },
  resizeCommand: {
    method: "POST",
    path: "/sandboxes/:id/commands/:commandId/resize",
    summary: "Resize its terminal",
    verb: "commands",
    params: Command,
    body: ResizeTerminal,
    reply: CommandInfo,
  },
  runOnce: {
    method: "POST",
    path: "/run",
    summary:
      "Run code in a sandbox that lives for this run only; answers with the result, or as a stream with " +
      "`Accept: application/x-ndjson`",
    verb: "commands",
    body: RunOnce,
    reply: CommandResult,
    isIdempotent: true,
  },
  endRun: {
    method: "DELETE",
    path: "/run",
    summary: "Remove the run with this `Idempotency-Key`: its result is no longer kept, and its sandbox is killed",
    verb: "commands",
    reply: "empty",
    status: 204,
    isIdempotent: true,
  },
} as const satisfies Record<string, Route>;
