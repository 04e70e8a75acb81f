import { isUtf8 } from "node:buffer";
import { isSandboxError, SandboxError, type CommandLine, type WireError } from "@atoll/protocol";
import type { Command } from "../commands/command.ts";
import type { LogPiece } from "../commands/follow-log.ts";
import { LineStream } from "./handlers.ts";

/**
 * Returns a command as lines: its start, its output from `from` on, and its end if `follow` waits for it or the command
 * has ended.
 */
export function commandLines(
  command: Command,
  options: { from?: number; rollbacks?: number | undefined; follow?: boolean; signal: AbortSignal },
): LineStream<CommandLine> {
  command.assertNotRolledBack(options.rollbacks);
  const { stdoutBytes, stderrBytes } = command.info();
  const endAt = stdoutBytes + stderrBytes;
  const { from = 0 } = options;
  // This is checked here, before the status is sent.
  if (from > endAt) {
    throw new SandboxError("invalid_argument", `Cannot read from byte ${from}: only ${endAt} are there`, {
      details: { field: "from", endAt },
    });
  }
  return new LineStream(linesOf(command, options), {
    heartbeat: () => ({ type: "heartbeat", atMs: Date.now() }),
    shutdown: () => ({ type: "shutdown" }),
    refused: (error) => ({ type: "refused", error }),
  });
}

async function* linesOf(
  command: Command,
  { from = 0, follow = true, signal }: { from?: number; follow?: boolean; signal: AbortSignal },
): AsyncGenerator<CommandLine, void, void> {
  yield { type: "started", command: command.info() };
  try {
    for await (const piece of command.follow({ from, follow, signal })) yield* outputLines(piece);
    if (follow) await command.waitEnd(signal);
  } catch (error) {
    if (!isSandboxError(error, "guest_silent")) throw error;
    yield { type: "refused", error: error.toJSON() as WireError };
    return;
  }
  if (!command.isRunning) yield { type: "ended", command: command.info() };
}

function* outputLines(piece: LogPiece): Generator<CommandLine, void, void> {
  if (piece.type === "dropped") {
    yield { type: "dropped", at: piece.at, bytes: piece.bytes };
    return;
  }
  const { stream, data } = piece;
  for (const { start, end, isText } of textParts(data)) {
    const bytes = data.subarray(start, end);
    const place = { type: stream, at: piece.at + start, offset: piece.offset + start };
    yield isText ? { ...place, text: bytes.toString("utf8") } : { ...place, base64: bytes.toString("base64") };
  }
}

interface Part {
  start: number;
  end: number;
  isText: boolean;
}

/**
 * Splits data into text and bytes. Where the log cut a character in two, only the bytes of that character are sent as
 * base64; the rest stays readable.
 */
export function textParts(data: Buffer): Part[] {
  const start = leadingContinuation(data);
  const end = data.byteLength - trailingBeginning(data);
  if (start >= end || !isUtf8(data.subarray(start, end))) {
    return data.byteLength === 0 ? [] : [{ start: 0, end: data.byteLength, isText: isUtf8(data) }];
  }
  return [
    { start: 0, end: start, isText: false },
    { start, end, isText: true },
    { start: end, end: data.byteLength, isText: false },
  ].filter((part) => part.end > part.start);
}

/** Counts the bytes at the beginning that continue a character from before: at most three. */
function leadingContinuation(data: Buffer): number {
  let count = 0;
  while (count < 3 && ((data[count] ?? 0) & 0xc0) === 0x80) count += 1;
  return count;
}

/** Counts the bytes at the end that begin a character and do not finish it: at most three. */
function trailingBeginning(data: Buffer): number {
  for (let back = 1; back <= Math.min(3, data.byteLength); back += 1) {
    const byte = data[data.byteLength - back] ?? 0;
    if ((byte & 0xc0) === 0x80) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}
