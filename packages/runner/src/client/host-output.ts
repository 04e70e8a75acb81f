import { startHostProcess } from "@atoll/host";

export interface HostOutputOptions {
  signal: AbortSignal;
  env?: Readonly<Record<string, string>>;
  /** Makes the error of a program that fails from the last that it printed to stderr. */
  failure: (words: string) => Error;
}

const mostWords = 4096;

/** The stdout of a program, as fast as it is asked for. A reader that leaves early ends the program. */
export async function* readProgram(
  argv: readonly string[],
  { signal, env, failure }: HostOutputOptions,
): AsyncGenerator<Uint8Array, void, undefined> {
  const [file = "", ...args] = argv;
  const program = await startHostProcess(file, args, { signal, ...(env === undefined ? {} : { env }) });
  let words = "";
  try {
    for await (const { stream, data } of program) {
      if (stream === "stdout") yield data;
      else words = (words + data.toString("utf8")).slice(-mostWords);
    }
  } finally {
    // After the end this does nothing.
    await program.kill("SIGKILL");
  }
  const { exitCode } = await program.wait();
  signal.throwIfAborted();
  if (exitCode !== 0) throw failure(words.trim());
}

/** One piece in memory at a time; a reader that leaves ends the source. */
export function streamOf(source: AsyncGenerator<Uint8Array, void, undefined>): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      pull: async (controller) => {
        const { done, value } = await source.next();
        if (done === true) controller.close();
        else controller.enqueue(value);
      },
      cancel: async () => {
        await source.return();
      },
    },
    { highWaterMark: 0 },
  );
}
