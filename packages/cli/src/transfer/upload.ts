import { createReadStream } from "node:fs";
import { lstat, stat } from "node:fs/promises";
import { basename, posix, resolve } from "node:path";
import { pack } from "@atoll/host";
import { isSandboxError } from "@atoll/protocol";
import type { FileInfo } from "@atoll/sdk";
import { UsageError } from "../input/usage-error.ts";
import { byteStream, stdinStream } from "./byte-stream.ts";
import type { Transfer, Transferred } from "./transfer.ts";

/** Copies into the sandbox. */
export async function upload(transfer: Transfer, from: string, to: string): Promise<Transferred> {
  const { cli, onBytes } = transfer;
  if (from === "-") return uploadStream(transfer, stdinStream(cli, onBytes), to, "644");
  const stats = await stat(from).catch((error: Error) => {
    throw new UsageError(`Cannot copy ${from}: ${error.message}`);
  });
  const target = await targetInside(transfer, basename(resolve(from)), to);
  if (stats.isDirectory()) return uploadDirectory(transfer, from, target);
  if (!stats.isFile()) throw new UsageError(`Cannot copy ${from}: it is neither a file nor a directory`);
  const mode = (stats.mode & 0o777).toString(8).padStart(3, "0");
  return uploadStream(transfer, byteStream(createReadStream(from), onBytes), target, mode);
}

async function uploadDirectory(
  { cli, files, user, ...callbacks }: Transfer,
  from: string,
  to: string,
): Promise<Transferred> {
  // A link that the user names is followed; links below a directory stay links.
  const directory = (await lstat(from)).isSymbolicLink() ? `${from}/` : from;
  const archive = byteStream(pack(directory, { signal: cli.signal, ...callbacks }));
  await files.mkdir(to, { user, signal: cli.signal });
  return files.upload(archive, to, { user, signal: cli.signal });
}

async function uploadStream(
  { cli, files, user }: Transfer,
  body: ReadableStream<Uint8Array>,
  to: string,
  mode: string,
): Promise<Transferred> {
  const { sizeBytes } = await files.write(to, body, { user, mode, signal: cli.signal });
  return { files: 1, bytes: sizeBytes };
}

/** Returns the target; in an existing directory the copy keeps its own name. */
async function targetInside({ cli, files, user }: Transfer, name: string, to: string): Promise<string> {
  if (to.endsWith("/")) return posix.join(to, name);
  let there: FileInfo;
  try {
    there = await files.stat(to, { user, signal: cli.signal });
  } catch (error) {
    if (isSandboxError(error, "not_found") || isSandboxError(error, "file_error")) return to;
    throw error;
  }
  return there.type === "directory" ? posix.join(to, name) : to;
}
