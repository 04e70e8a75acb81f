import { stat } from "node:fs/promises";
import { basename, join, posix } from "node:path";
import { unpack } from "@atoll/host";
import { UsageError } from "../input/usage-error.ts";
import { printStream, saveStream } from "./save-stream.ts";
import type { Transfer, Transferred } from "./transfer.ts";

/** Copies out of the sandbox. A file is written completely or not at all. */
export async function download(transfer: Transfer, from: string, to: string): Promise<Transferred> {
  const { cli, files, user } = transfer;
  const info = await files.stat(from, { user, signal: cli.signal });
  if (to === "-") {
    if (info.type === "directory") throw new UsageError(`Cannot print ${from}: it is a directory`);
    return downloadToStdout(transfer, from);
  }
  const name = nameOf(from);
  const isInto = to.endsWith("/") || (await stat(to).catch(() => undefined))?.isDirectory() === true;
  const target = isInto && name !== undefined ? join(to, name) : to;
  if (info.type === "directory") {
    const archive = await files.download(from, { user, signal: cli.signal });
    return unpack(archive, target, { ...transfer, signal: cli.signal });
  }
  return downloadFile(transfer, from, target, info.mode);
}

/** Returns the last part of a path in the sandbox; a home directory has no name of its own. */
function nameOf(path: string): string | undefined {
  const name = posix.basename(posix.normalize(path));
  return name === "." || name === ".." || name === "" ? undefined : basename(name);
}

async function downloadFile(transfer: Transfer, from: string, target: string, mode: number): Promise<Transferred> {
  const { cli, files, user, onBytes } = transfer;
  const { signal } = cli;
  const body = await files.read(from, { user, as: "stream", signal });
  return { files: 1, bytes: await saveStream(body, target, { signal, mode: mode & 0o777, onBytes }) };
}

async function downloadToStdout({ cli, files, user, onBytes }: Transfer, from: string): Promise<Transferred> {
  const body = await files.read(from, { user, as: "stream", signal: cli.signal });
  return { files: 1, bytes: await printStream(cli, body, onBytes) };
}
