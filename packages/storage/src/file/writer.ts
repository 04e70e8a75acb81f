import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { open, rename, unlink, type FileHandle } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import type { ObjectVersion } from "../object-store.ts";
import { hasErrno } from "./file-failure.ts";
import { thisMachine } from "./machine.ts";
import { nameVersion } from "./version.ts";
import { notListeningMark } from "./writers.ts";

const maxAttempts = 5;

/**
 * A process that writes into a store. It has a socket in the store's directory that listens for exactly as long as the
 * process lives, so others can distinguish what a dead writer left from what a living one is writing. Unlike process
 * ids, sockets in a directory are found from all namespaces of a machine.
 */
export class Writer {
  readonly id: string;
  readonly #server: Server;
  readonly #directory: FileHandle;
  readonly #socket: string;
  readonly #atWork = new Set<ObjectVersion>();
  #count = 0;

  private constructor(id: string, server: Server, directory: FileHandle, socket: string) {
    this.id = id;
    this.#server = server;
    this.#directory = directory;
    this.#socket = socket;
  }

  static async start(writersDir: string): Promise<Writer> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await Writer.#start(writersDir);
      } catch (error) {
        // Between bind and listen the socket looks dead, and another process may have removed it.
        if (!hasErrno(error, "ENOENT") || attempt === maxAttempts) throw error;
      }
    }
  }

  static async #start(writersDir: string): Promise<Writer> {
    const id = randomBytes(12).toString("hex");
    const name = `${id}.${thisMachine().id}.${thisMachine().boot}`;
    const directory = await open(writersDir, "r");
    const server = createServer((socket) => {
      socket.destroy();
    });
    try {
      // The address goes through the descriptor, because addresses of sockets are short and paths of stores may be
      // long.
      const temporary = `/proc/self/fd/${directory.fd}/${name}${notListeningMark}`;
      server.listen(temporary);
      await once(server, "listening");
      // The socket gets its final name only now, so a living writer is never found with a socket that does not listen
      // yet.
      const socket = join(writersDir, name);
      await rename(temporary, socket);
      server.unref();
      return new Writer(id, server, directory, socket);
    } catch (error) {
      server.close();
      await directory.close();
      throw error;
    }
  }

  /** Starts a version that no sweep removes before `done`, unless this process dies. */
  begin(): ObjectVersion {
    this.#count += 1;
    const version = nameVersion(this.id, this.#count);
    this.#atWork.add(version);
    return version;
  }

  done(version: ObjectVersion): void {
    this.#atWork.delete(version);
  }

  isAtWork(version: ObjectVersion): boolean {
    return this.#atWork.has(version);
  }

  async close(): Promise<void> {
    await unlink(this.#socket).catch((error: unknown) => {
      if (!hasErrno(error, "ENOENT")) throw error;
    });
    await new Promise((resolve) => this.#server.close(resolve));
    await this.#directory.close();
  }
}
