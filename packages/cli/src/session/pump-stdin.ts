import { isSandboxError } from "@atoll/protocol";
import type { CommandHandle } from "@atoll/sdk";
import { stdinPieces } from "../input/stdin-pieces.ts";
import { DetachKeys } from "../terminal/detach-keys.ts";

export interface PumpOptions {
  /** The input is typed: it may have the keys that leave the command, and its end is a terminal that is gone. */
  isTyped: boolean;
  signal: AbortSignal;
}

/**
 * Sends our input inside until it ends, the command does, or the user leaves. A reader that is slow inside makes the
 * writer here wait. Resolves with whether the user left.
 */
export async function pumpStdin(
  stdin: NodeJS.ReadStream,
  handle: CommandHandle,
  options: PumpOptions,
): Promise<{ isDetached: boolean }> {
  const keys = options.isTyped ? new DetachKeys() : undefined;
  try {
    for await (const piece of stdinPieces(stdin, options.signal)) {
      const { data, isDetached } = keys?.filter(piece) ?? { data: piece, isDetached: false };
      if (data.length > 0) await handle.sendStdin(data, { signal: options.signal });
      if (isDetached) return { isDetached };
    }
    // A user whose terminal is gone may come back; only a pipe has an end that is meant for the command.
    if (!options.signal.aborted && !options.isTyped) await handle.closeStdin({ signal: options.signal });
  } catch (error) {
    // Both are the end of the command, which its output tells with the reason.
    if (!options.signal.aborted && !isSandboxError(error, "invalid_state")) throw error;
  }
  return { isDetached: false };
}
