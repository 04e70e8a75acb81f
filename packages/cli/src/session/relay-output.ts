import { isUtf8 } from "node:buffer";
import type { CommandInfo } from "@atoll/protocol";
import type { CommandHandle, OutputEvent } from "@atoll/sdk";
import type { Cli } from "../cli.ts";

export interface RelayOptions {
  /** How many bytes, in their common order, are skipped. */
  from?: number;
  /** The output is complete at this many bytes; absent: when the command ends. */
  untilBytes?: number;
  signal: AbortSignal;
}

/**
 * Writes the output of a command to our stdout and stderr, or as JSON lines; resolves with what is known of the command
 * at the end.
 */
export async function relayOutput(cli: Cli, handle: CommandHandle, options: RelayOptions): Promise<CommandInfo> {
  const { from = 0, untilBytes = Number.POSITIVE_INFINITY, signal } = options;
  const { command } = handle;
  if (cli.isJson) await cli.printJson({ type: "started", command });
  if (command.state === "running" && from >= untilBytes) return command;
  for await (const event of handle.events({ from, signal })) {
    await relayEvent(cli, event);
    if (event.type === "ended") return event.command;
    if (command.state === "running" && endOf(event) >= untilBytes) return command;
  }
  throw new Error("The output of the command stopped before its end");
}

export async function relayEvent(cli: Cli, event: OutputEvent): Promise<void> {
  switch (event.type) {
    case "stdout":
    case "stderr":
      if (cli.isJson) await cli.printJson(lineOf(event));
      else await cli.write(event.data, event.type);
      return;
    case "dropped":
      if (cli.isJson) await cli.printJson(event);
      // The carriage return is for a terminal in raw mode.
      else cli.note(`[${event.bytes} bytes are no longer in the log]\r`);
      return;
    case "ended":
      if (cli.isJson) await cli.printJson(event);
  }
}

function endOf(event: Exclude<OutputEvent, { type: "ended" }>): number {
  return event.at + (event.type === "dropped" ? event.bytes : event.data.length);
}

/** Has the same form as in the HTTP interface: text where it is whole, base64 otherwise. */
function lineOf({ type, at, offset, data }: Extract<OutputEvent, { data: Uint8Array }>): Record<string, unknown> {
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  return {
    type,
    at,
    offset,
    ...(isUtf8(bytes) ? { text: bytes.toString("utf8") } : { base64: bytes.toString("base64") }),
  };
}
