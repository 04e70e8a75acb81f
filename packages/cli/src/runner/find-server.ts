import { join } from "node:path";
import { isSandboxError } from "@atoll/protocol";
import { Atoll } from "@atoll/sdk";
import type { Cli } from "../cli.ts";
import { openPrivateServer } from "../host/private-server.ts";

/** For a server that may not be there at all. */
const probeTimeoutMs = 3_000;

/** A server to run things on. `dispose` leaves it, which ends a private one with its last client. */
export interface FoundServer extends AsyncDisposable {
  atoll: Atoll;
}

/**
 * Returns the server that the settings name. If none is named, it is the one at the default address, as far as the key
 * works there, or else a private one.
 */
export async function findServer(cli: Cli): Promise<FoundServer> {
  const { url, key } = await cli.settings();
  const isNamed = url.source !== "default";
  if (isNamed || (await works(url.value, key.value, cli.signal))) {
    const atoll = await cli.atoll();
    // The connection belongs to the call of `atoll` as a whole.
    return { atoll, [Symbol.asyncDispose]: async () => undefined };
  }
  const directory = join(cli.environment.cacheDirectory, "private-server");
  const server = await cli.during("Starting a private server", openPrivateServer({ directory, signal: cli.signal }));
  const how = server.isNew ? "a private one was started" : "the private one that is running is used";
  cli.note(`There is no server at ${url.value} for this key: ${how}, at ${server.url}.`);
  const atoll = new Atoll({ baseUrl: server.url, apiKey: server.key });
  return {
    atoll,
    [Symbol.asyncDispose]: async () => {
      await atoll[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

async function works(url: string | undefined, key: string | undefined, signal: AbortSignal): Promise<boolean> {
  if (key === undefined) return false;
  await using atoll = new Atoll({ baseUrl: url, apiKey: key, requestTimeoutMs: probeTimeoutMs });
  try {
    for await (const _sandbox of atoll.sandboxes({ pageSize: 1, signal })) break;
    return true;
  } catch (error) {
    if (isSandboxError(error)) return false;
    throw error;
  }
}
