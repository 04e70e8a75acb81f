/**
 * Yields the input until its end or the abort. The stream's own iterator would wait for one more piece after an abort.
 * Afterwards stdin no longer keeps the process alive.
 */
export async function* stdinPieces(
  stdin: NodeJS.ReadStream,
  signal: AbortSignal,
): AsyncGenerator<Buffer, void, undefined> {
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
    stdin.pause();
    stdin.unref?.();
  }
}
