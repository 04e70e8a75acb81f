import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, open } from "node:fs/promises";
import { createConnection, type Socket } from "node:net";
import { join } from "node:path";
import { hasErrno, pollUntil } from "@atoll/host";
import { isSandboxError } from "@atoll/protocol";
import { prepareCheckout } from "./prepare-checkout.ts";
import { socketAddress, socketName, type PrivateServerAddress } from "./server-keeper.ts";
import { failureOfKeeper, startKeeper } from "./start-keeper.ts";

/** A server for this user's programs, shared by those that run at the same time. It ends with the last of them. */
export interface PrivateServer extends PrivateServerAddress, AsyncDisposable {
  /** Whether this call has started it. */
  isNew: boolean;
}

export interface PrivateServerOptions {
  /** Everything that it keeps, snapshots included. */
  directory: string;
  signal: AbortSignal;
}

/** For a first start, which may compile the guest program, or for another keeper to end. */
const deadlineMs = 10 * 60_000;
/** A keeper that has the directory and no socket starts or ends. After this time another one is started. */
const otherKeeperMs = 3_000;

/** Connects to the private server in the directory and starts it if there is none. */
export async function openPrivateServer({ directory, signal }: PrivateServerOptions): Promise<PrivateServer> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const endsAtMs = performance.now() + deadlineMs;
  let isNew = false;
  let isPrepared = false;
  for (;;) {
    signal.throwIfAborted();
    const joined = await connectTo(directory, signal);
    if (joined !== undefined) return { ...joined, isNew };
    if (!isPrepared) await prepareCheckout(signal);
    isPrepared = true;
    const word = await startKeeper("keep-server", directory, { signal });
    isNew = "ready" in word;
    if (isNew) continue;
    const error = failureOfKeeper(word);
    if (isSandboxError(error, "in_use") && performance.now() < endsAtMs) await untilSocket(directory, signal);
    else throw error;
  }
}

/** Nothing announces a socket. That it never comes is no error: the keeper may have ended. */
async function untilSocket(directory: string, signal: AbortSignal): Promise<void> {
  const path = join(directory, socketName);
  await pollUntil(() => existsSync(path), { deadlineMs: otherKeeperMs, signal });
}

/** `undefined`: there is none. The connection is what keeps the server alive. */
async function connectTo(
  directory: string,
  signal: AbortSignal,
): Promise<(PrivateServerAddress & AsyncDisposable) | undefined> {
  const opened = await open(directory, "r");
  try {
    const socket = createConnection(socketAddress(opened));
    await once(socket, "connect");
    const address = await readAddress(socket, signal);
    // It keeps the server alive, and not this program.
    socket.unref();
    if (address === undefined) return undefined;
    return {
      ...address,
      [Symbol.asyncDispose]: async () => {
        socket.destroy();
      },
    };
  } catch (error) {
    if (hasErrno(error, "ENOENT", "ECONNREFUSED", "ECONNRESET")) return undefined;
    throw error;
  } finally {
    await opened.close();
  }
}

/** `undefined`: the keeper ends at this moment. */
async function readAddress(socket: Socket, signal: AbortSignal): Promise<PrivateServerAddress | undefined> {
  const leave = () => void socket.destroy();
  signal.addEventListener("abort", leave, { once: true });
  socket.on("error", leave);
  try {
    let text = "";
    for await (const data of socket.iterator({ destroyOnReturn: false })) {
      text += String(data);
      if (text.endsWith("\n")) return JSON.parse(text) as PrivateServerAddress;
    }
  } catch {
    signal.throwIfAborted();
  } finally {
    signal.removeEventListener("abort", leave);
  }
  return undefined;
}
