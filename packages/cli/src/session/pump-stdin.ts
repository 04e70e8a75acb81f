import { isSandboxError } from "@atoll/protocol";
import type { CommandHandle } from "@atoll/sdk";
import { stdinPieces } from "../input/stdin-pieces.ts";
import { DetachKeys } from "../terminal/detach-keys.ts";

export interface PumpOptions {
  /**
   * Whether the input is typed: then it may have the keys that leave the command, and its end means that the terminal
   * is gone.
   */
  isTyped: boolean;
  signal: AbortSignal;
}

/**
 * Sends our input to the command until the input or the command ends, or the user leaves. It reads no faster than the
 * command does. Resolves with whether the user left.
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
    // A user whose terminal is gone may come back, so only the end of a pipe ends the command's input.
    if (!options.signal.aborted && !options.isTyped) await handle.closeStdin({ signal: options.signal });
  } catch (error) {
    // In both cases the command has ended, and its output has the reason.
    if (!options.signal.aborted && !isSandboxError(error, "invalid_state")) throw error;
  }
  return { isDetached: false };
}
