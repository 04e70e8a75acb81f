import type { CommandResult } from "@atoll/protocol";
import type { Command } from "./command.ts";

/** The most output that one reply holds. The log may have more, which a stream can read. */
const headBytes = 4 * 1024 * 1024;
const tailBytes = 12 * 1024 * 1024;

/**
 * Waits for the end of a command and returns it together with its output, as far as the log has it and a reply can hold
 * it.
 */
export async function commandResult(command: Command, signal?: AbortSignal): Promise<CommandResult> {
  const info = await command.waitEnd(signal);
  const endAt = info.stdoutBytes + info.stderrBytes;
  const tailFrom = Math.max(headBytes, endAt - tailBytes);
  const chunks = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  let bytes = 0;
  const collect = async (from: number, to: number): Promise<void> => {
    for await (const piece of command.follow({ from, signal })) {
      if (piece.at >= to) return;
      if (piece.type === "dropped") continue;
      const data = piece.data.subarray(0, to - piece.at);
      chunks[piece.stream].push(data);
      bytes += data.byteLength;
    }
  };
  if (endAt <= headBytes + tailBytes) await collect(0, endAt);
  else {
    await collect(0, headBytes);
    await collect(tailFrom, endAt);
  }
  return {
    command: info,
    stdout: Buffer.concat(chunks.stdout).toString(),
    stderr: Buffer.concat(chunks.stderr).toString(),
    droppedBytes: endAt - bytes,
  };
}
