import { startHostProcess } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";

export interface HostTarOptions {
  signal: AbortSignal;
  /** What the archive says of owners; the reader may have its own opinion. */
  uid?: number;
}

const mostWords = 4096;

/** A directory of the host, with everything below it, as an archive. It is read as fast as it is asked for. */
export async function* packHostDirectory(
  directory: string,
  { signal, uid = 0 }: HostTarOptions,
): AsyncGenerator<Uint8Array, void, undefined> {
  const owner = [`--owner=${uid}`, `--group=${uid}`, "--numeric-owner"];
  const tar = await startHostProcess(
    "tar",
    ["--directory", directory, "--format=gnu", "--hard-dereference", ...owner, "--create", "--file", "-", "."],
    { signal },
  );
  let words = "";
  try {
    for await (const { stream, data } of tar) {
      if (stream === "stdout") yield data;
      else if (words.length < mostWords) words += data.toString("utf8");
    }
  } finally {
    // A reader that has left early wants no more; after the end this does nothing.
    await tar.kill("SIGKILL");
  }
  const { exitCode } = await tar.wait();
  signal.throwIfAborted();
  if (exitCode === 0) return;
  throw new SandboxError("file_error", `Cannot read ${directory}: ${words.trim().split("\n")[0] ?? "tar has failed"}`, {
    suggestion: "See that its files can be read and do not change while they are copied.",
  });
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
