import { mkdir, open } from "node:fs/promises";
import { dirname, posix } from "node:path";
import { unpack } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";

/** What a sandbox may put on the disk of the host with one copy. */
const mostCopiedBytes = 1024 * 1024 * 1024;

/** Stores a file that a stranger made, up to a limit. */
export async function saveFile(
  source: AsyncIterable<Uint8Array>,
  hostPath: string,
  { signal, path }: { signal: AbortSignal; path: string },
): Promise<void> {
  await mkdir(dirname(hostPath), { recursive: true });
  const file = await open(hostPath, "w", 0o600);
  try {
    for await (const piece of bounded(source, path)) {
      signal.throwIfAborted();
      await file.writeFile(piece);
    }
  } finally {
    await file.close();
  }
}

/** Unpacks a directory that a stranger made, up to a limit. Links that lead out of it are left out. */
export async function saveDirectory(
  archive: AsyncIterable<Uint8Array>,
  hostPath: string,
  { signal, path }: { signal: AbortSignal; path: string },
): Promise<void> {
  await unpack(bounded(archive, path), hostPath, { signal, onSkipped: () => undefined });
}

/** Unpacks the only file or directory of such an archive under another name. */
export async function saveOnly(
  archive: AsyncIterable<Uint8Array>,
  hostPath: string,
  { signal, path }: { signal: AbortSignal; path: string },
): Promise<void> {
  let isStored = true;
  const onSkipped = (skipped: string): void => {
    if (skipped === "" || skipped === posix.basename(path)) isStored = false;
  };
  await unpack(bounded(archive, path), hostPath, { signal, onSkipped, hasTop: true });
  if (!isStored) throw notCopied(path, "special file or a link");
}

async function* bounded(source: AsyncIterable<Uint8Array>, path: string): AsyncGenerator<Uint8Array, void, undefined> {
  let bytes = 0;
  for await (const piece of source) {
    bytes += piece.length;
    if (bytes > mostCopiedBytes) {
      throw new SandboxError("limit_reached", `Cannot copy ${path}: it has more than ${mostCopiedBytes} bytes`, {
        suggestion: "Pack or shorten it inside first, or copy parts of it.",
      });
    }
    yield piece;
  }
}

/** What is neither a file nor a directory is refused: a link could lead anywhere, and a pipe would never end. */
export function notCopied(path: string, type: string): SandboxError {
  return new SandboxError("file_error", `Cannot copy ${path}: it is a ${type}`, {
    suggestion: "Copy a file or a directory.",
  });
}
