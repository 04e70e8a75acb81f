import { once } from "node:events";
import { mkdir, open, rm } from "node:fs/promises";
import { createServer, type Socket } from "node:net";
import { join } from "node:path";
import { messageOf } from "@atoll/host";
import type { LiveEvent } from "@atoll/live";
import { isSandboxError, SandboxError } from "@atoll/protocol";
import type { Cli } from "../cli.ts";
import { socketAddress, socketName } from "../host/server-keeper.ts";
import { AppRequest, maxRequestBytes, type AppFailure, type AppLine } from "./app-requests.ts";
import { KeptApps } from "./kept-apps.ts";

/** How long a manager without an app and without a command waits for one. */
const idleMs = 5_000;
/** A command that does not read its events is left behind, so that they do not fill the memory. */
const mostUnsentBytes = 16 * 1024 * 1024;

/**
 * Runs apps in a directory and serves commands on a socket in it, until a signal ends it or there is no app left. The
 * caller has the lock of the directory. Calls `onReady` when commands can connect.
 */
export async function keepApps(
  directory: string,
  cli: Pick<Cli, "environment" | "signal">,
  onReady: () => void,
): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const opened = await open(directory, "r");
  try {
    // The process that listened here has died, because this one has the lock.
    await rm(join(directory, socketName), { force: true });
    await using apps = await KeptApps.open(directory, cli);
    await new Keeper(apps, cli.signal).serve(socketAddress(opened), onReady);
    // New commands find no socket from here on, and start a manager that waits for the lock.
    await rm(join(directory, socketName), { force: true });
  } finally {
    await opened.close();
  }
}

class Keeper {
  readonly #apps: KeptApps;
  readonly #clients = new Set<Socket>();
  readonly #over = new AbortController();
  #idle: NodeJS.Timeout | undefined;

  constructor(apps: KeptApps, signal: AbortSignal) {
    this.#apps = apps;
    signal.addEventListener("abort", () => this.#over.abort(), { once: true });
    if (signal.aborted) this.#over.abort();
  }

  async serve(address: string, onReady: () => void): Promise<void> {
    const over = this.#over.signal;
    const listener = createServer((socket) => void this.#attend(socket));
    listener.listen(address);
    await once(listener, "listening");
    this.#rest();
    onReady();
    if (!over.aborted) await once(over, "abort");
    clearTimeout(this.#idle);
    listener.close();
    for (const client of this.#clients) client.destroy();
  }

  /** Without an app there is nothing to keep. A command that just ended may be followed by another one. */
  #rest(): void {
    clearTimeout(this.#idle);
    if (this.#clients.size > 0 || this.#apps.areRunning || this.#over.signal.aborted) return;
    this.#idle = setTimeout(() => this.#over.abort(), idleMs);
  }

  async #attend(socket: Socket): Promise<void> {
    this.#clients.add(socket);
    clearTimeout(this.#idle);
    const left = new AbortController();
    socket.on("error", () => socket.destroy());
    socket.on("close", () => {
      left.abort();
      this.#clients.delete(socket);
      this.#rest();
    });
    const send = (line: AppLine): void => {
      if (!socket.destroyed) socket.write(`${JSON.stringify(line)}\n`);
    };
    try {
      const text = await readLine(socket);
      if (text === undefined) return;
      socket.resume();
      const request = parse(text);
      const result =
        request.method === "watch"
          ? await this.#watch(request.ids, socket, left.signal, send)
          : await this.#apps.handle(request);
      send({ result });
    } catch (error) {
      send({ error: failureOf(error) });
    }
    socket.end();
  }

  async #watch(
    ids: readonly string[],
    socket: Socket,
    left: AbortSignal,
    send: (line: AppLine) => void,
  ): Promise<null> {
    const tooSlow = new AbortController();
    const stop = this.#apps.onEvent((event: LiveEvent) => {
      if (ids.length > 0 && !ids.includes(event.app)) return;
      if (socket.writableLength > mostUnsentBytes) tooSlow.abort();
      else send({ event });
    });
    try {
      await this.#apps.assertKnown(ids);
      await this.#apps.flushLogs();
      send({ isReady: true });
      const over = AbortSignal.any([left, this.#over.signal, tooSlow.signal]);
      if (!over.aborted) await once(over, "abort");
    } finally {
      stop();
    }
    if (!tooSlow.signal.aborted) return null;
    throw new SandboxError("limit_reached", "Cannot go on with the events: this command reads them too slowly");
  }
}

async function readLine(socket: Socket): Promise<string | undefined> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const data of socket.iterator({ destroyOnReturn: false })) {
    parts.push(data as Buffer);
    bytes += (data as Buffer).byteLength;
    if (bytes > maxRequestBytes) {
      throw new SandboxError("limit_reached", `Cannot read a request of more than ${maxRequestBytes} bytes`);
    }
    if ((data as Buffer).includes(10)) return Buffer.concat(parts).toString("utf8");
  }
  return undefined;
}

function parse(text: string): AppRequest {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new SandboxError("invalid_argument", "Cannot read a request: it is not JSON", { cause: error });
  }
  const parsed = AppRequest.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new SandboxError("invalid_argument", `Cannot read a request: ${issue?.path.join(".")}: ${issue?.message}`, {
    suggestion: "The manager may be of another version than this command: end it, and it is started again.",
  });
}

/** What a command says to its user about a failure. */
function failureOf(error: unknown): AppFailure {
  if (!isSandboxError(error)) return { code: "internal", message: messageOf(error) };
  const { code, message, suggestion, details } = error;
  return { code, message, details, ...(suggestion === undefined ? {} : { suggestion }) };
}
