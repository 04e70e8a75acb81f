import { join } from "node:path";
import { isSandboxError } from "@atoll/protocol";
import { Atoll } from "@atoll/sdk";
import type { Cli } from "../cli.ts";
import { openPrivateServer } from "../host/private-server.ts";
import type { Settings } from "../settings/settings.ts";

/** For a server that may not be there at all. */
const probeTimeoutMs = 3_000;

/** A server to run things on. `dispose` leaves it, which ends a private one with its last client. */
export interface FoundServer extends AsyncDisposable {
  atoll: Atoll;
}

/** Where a server is. `dispose` leaves it. */
export interface ServerPlace extends AsyncDisposable {
  url: string | undefined;
  key: string | undefined;
  /** What a person has to know about a private server. */
  note: string | undefined;
}

/** Returns a server, and starts a private one if there is none. */
export async function findServer(cli: Cli): Promise<FoundServer> {
  const settings = await cli.settings();
  const existing = await existingServer(settings, cli.signal);
  if (existing !== undefined) {
    const atoll = await cli.atoll();
    // The connection belongs to the call of `atoll` as a whole.
    return { atoll, [Symbol.asyncDispose]: async () => undefined };
  }
  const server = await cli.during("Starting a private server", privateServer(cli, settings));
  if (server.note !== undefined) cli.note(server.note);
  const atoll = new Atoll({ baseUrl: server.url, apiKey: server.key });
  return {
    atoll,
    [Symbol.asyncDispose]: async () => {
      await atoll[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

/**
 * Returns the server that the settings name. If none is named, it is the one at the default address, as far as the key
 * works there.
 */
export async function existingServer({ url, key }: Settings, signal: AbortSignal): Promise<ServerPlace | undefined> {
  const isNamed = url.source !== "default";
  if (!isNamed && !(await works(url.value, key.value, signal))) return undefined;
  return { url: url.value, key: key.value, note: undefined, [Symbol.asyncDispose]: async () => undefined };
}

/** Returns the private server of this user, which is started if it does not run. */
export async function privateServer(
  { environment, signal }: Pick<Cli, "environment" | "signal">,
  { url }: Settings,
): Promise<ServerPlace> {
  const server = await openPrivateServer({ directory: join(environment.cacheDirectory, "private-server"), signal });
  const how = server.isNew ? "a private one was started" : "the private one that is running is used";
  return {
    url: server.url,
    key: server.key,
    note: `There is no server at ${url.value} for this key: ${how}, at ${server.url}.`,
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
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
