import { isSandboxError } from "@atoll/protocol";
import type { CommandHandle } from "@atoll/sdk";
import { DetachKeys } from "../terminal/detach-keys.ts";

export interface PumpOptions {
  /** The input is typed: it may have the keys that leave the command, and its end is a terminal that is gone. */
  isTyped: boolean;
  signal: AbortSignal;
}

/**
 * Sends our input inside until it ends, the command does, or the user leaves. A reader that is slow inside makes the writer here wait.
 * Resolves with whether the user left.
 */
export async function pumpStdin(
  stdin: NodeJS.ReadStream,
  handle: CommandHandle,
  options: PumpOptions,
): Promise<{ isDetached: boolean }> {
  const keys = options.isTyped ? new DetachKeys() : undefined;
  try {
    for await (const piece of piecesOf(stdin, options.signal)) {
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

/** The stream's own iterator would wait for one more key after the command has ended. */
async function* piecesOf(stdin: NodeJS.ReadStream, signal: AbortSignal): AsyncGenerator<Buffer, void, undefined> {
  let wake: () => void = () => undefined;
  let hasEnded = stdin.readableEnded;
  let failure: Error | undefined;
  const onReadable = () => wake();
  const onEnd = () => {
    hasEnded = true;
    wake();
  };
  const onError = (error: Error) => {
    failure = error;
    wake();
  };
  stdin.on("readable", onReadable).on("end", onEnd).on("error", onError);
  signal.addEventListener("abort", onReadable);
  try {
    while (!signal.aborted) {
      const changed = new Promise<void>((resolve) => {
        wake = resolve;
      });
      const piece = stdin.read() as Buffer | string | null;
      if (piece !== null) yield Buffer.from(piece);
      else if (failure !== undefined) throw failure;
      else if (hasEnded) return;
      else await changed;
    }
  } finally {
    stdin.off("readable", onReadable).off("end", onEnd).off("error", onError);
    signal.removeEventListener("abort", onReadable);
    // An open stdin keeps the process alive.
    stdin.pause();
    stdin.unref?.();
  }
}
