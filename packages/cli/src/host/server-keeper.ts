import { once } from "node:events";
import { mkdir, open, readFile, rm, writeFile, type FileHandle } from "node:fs/promises";
import { createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { hasErrno, writeDurably } from "@atoll/host";
import { startKeptServer, type KeptServer } from "./kept-server.ts";

/** What a client reads from the socket. */
export interface PrivateServerAddress {
  url: string;
  key: string;
}

/** The names in the directory of a private server. */
export const socketName = "keeper.sock";
const keyName = "key";

/** How long a keeper without a client waits for one: the client that started it may have died. */
const firstClientMs = 30_000;

/** A server that dies over and over is broken. */
const mostRestarts = 5;

/**
 * Runs one server in a directory for as long as a client is connected to the socket beside it. Which of several keepers
 * runs it is decided by the lock of the server's data directory; the others reject with `in_use`. Calls `onReady` when
 * clients can connect, and resolves when the server has stopped.
 */
export async function keepServer(directory: string, signal: AbortSignal, onReady: () => void): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const opened = await open(directory, "r");
  try {
    const { server, key } = await startWithKey(directory);
    await new Keeper(directory, opened, server, key).keep(signal, onReady);
  } finally {
    await opened.close();
  }
}

class Keeper {
  readonly #directory: string;
  readonly #opened: FileHandle;
  readonly #key: string;
  readonly #clients = new Set<Socket>();
  readonly #over = new AbortController();
  #server: KeptServer;
  #restarts = 0;

  constructor(directory: string, opened: FileHandle, server: KeptServer, key: string) {
    this.#directory = directory;
    this.#opened = opened;
    this.#server = server;
    this.#key = key;
  }

  async keep(signal: AbortSignal, onReady: () => void): Promise<void> {
    const over = this.#over.signal;
    signal.addEventListener("abort", () => this.#over.abort(), { once: true, signal: over });
    const alone = setTimeout(() => this.#over.abort(), firstClientMs);
    const listener = createServer((client) => {
      clearTimeout(alone);
      this.#greet(client);
    });
    void this.#watchServer();
    try {
      // This keeper's server has the data directory, so a socket that is there belongs to a keeper that has died.
      await rm(join(this.#directory, socketName), { force: true });
      await listen(listener, socketAddress(this.#opened));
      onReady();
      if (!over.aborted && !signal.aborted) await once(over, "abort");
    } finally {
      clearTimeout(alone);
      this.#over.abort();
      // New clients find no socket from here on, and start a keeper that waits for the directory.
      await rm(join(this.#directory, socketName), { force: true });
      listener.close();
      for (const client of this.#clients) client.destroy();
      await this.#server.stop();
    }
  }

  #greet(client: Socket): void {
    this.#clients.add(client);
    client.on("error", () => client.destroy());
    client.on("close", () => {
      this.#clients.delete(client);
      if (this.#clients.size === 0) this.#over.abort();
    });
    const address: PrivateServerAddress = { url: this.#server.url, key: this.#key };
    client.write(`${JSON.stringify(address)}\n`);
    client.resume();
  }

  /** A server that dies is started again on the same port: its sandboxes go on, and its clients connect again. */
  async #watchServer(): Promise<void> {
    for (;;) {
      await this.#server.ended;
      if (this.#over.signal.aborted) return;
      this.#restarts += 1;
      try {
        if (this.#restarts > mostRestarts) throw new Error("The private server has died too often");
        this.#server = await startKeptServer(optionsOf(this.#directory, this.#server.port));
      } catch {
        return this.#over.abort();
      }
      // The keeper was ended during the start.
      if (this.#over.signal.aborted) return this.#server.stop();
    }
  }
}

const optionsOf = (directory: string, port: number) => ({
  dataDir: join(directory, "data"),
  configPath: join(directory, "config.json"),
  logPath: join(directory, "server.log"),
  port,
});

/**
 * The server is the user's own, so a task may name a registry in the user's network. Loopback, where the user's other
 * programs listen, and link-local addresses, where clouds keep credentials, stay out of reach.
 */
const settings = {
  policy: {
    egress: {
      allow: [
        "*",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "172.16.0.0/12",
        "192.0.2.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "[fc00::/7]",
      ],
    },
  },
};

/** The key is stored at the first start. If it was lost, the server makes another one. */
async function startWithKey(directory: string): Promise<{ server: KeptServer; key: string }> {
  await writeFile(join(directory, "config.json"), `${JSON.stringify(settings)}\n`);
  const options = optionsOf(directory, 0);
  for (;;) {
    const server = await startKeptServer(options);
    const key = server.firstKey ?? (await readKey(directory));
    if (server.firstKey !== undefined) await writeDurably(join(directory, keyName), `${server.firstKey}\n`);
    if (key !== undefined) return { server, key };
    // A server writes the file when it stops.
    await server.stop();
    await rm(join(options.dataDir, "keys.json"), { force: true });
  }
}

async function readKey(directory: string): Promise<string | undefined> {
  try {
    return (await readFile(join(directory, keyName), "utf8")).trim() || undefined;
  } catch (error) {
    if (hasErrno(error, "ENOENT")) return undefined;
    throw error;
  }
}

async function listen(listener: Server, address: string): Promise<void> {
  listener.listen(address);
  await once(listener, "listening");
}

/** Through the descriptor, because addresses of sockets are short and paths of directories need not be. */
export function socketAddress(directory: FileHandle): string {
  return `/proc/self/fd/${directory.fd}/${socketName}`;
}
