import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import type { ByteSource } from "@atoll/sdk";
import type { Cli } from "../cli.ts";
import { UsageError } from "../input/usage-error.ts";
import { byteStream, stdinStream } from "./byte-stream.ts";

/** Opens a file here, or stdin for `-`. `kind` names what it should be. */
export async function openSource(cli: Cli, path: string, kind: string): Promise<ByteSource> {
  if (path === "-") return stdinStream(cli);
  const stats = await stat(path).catch((error: Error) => {
    throw new UsageError(`Cannot read ${path}: ${error.message}`);
  });
  if (!stats.isFile()) throw new UsageError(`Cannot import ${path}: it is not ${kind}`);
  return byteStream(createReadStream(path));
}
