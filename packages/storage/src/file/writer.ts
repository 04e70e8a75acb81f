import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { open, rename, unlink, type FileHandle } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import type { ObjectVersion } from "../object-store.ts";
import { hasErrno } from "./file-failure.ts";
import { thisMachine } from "./machine.ts";
import { nameVersion } from "./version.ts";
import { newbornMark } from "./writers.ts";

const mostAttempts = 5;

/**
 * Somebody who writes into a store, with a socket in its directory that listens for as long as the process lives,
 * however it ends: so others can tell what a dead writer left from what a living one is at. Sockets of files are found
 * from all namespaces of a machine, unlike process numbers.
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
        // Between its birth and its first breath a socket looks dead, and somebody may have removed it.
        if (!hasErrno(error, "ENOENT") || attempt === mostAttempts) throw error;
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
      // Through the descriptor, because addresses of sockets are short and paths of stores need not be.
      const newborn = `/proc/self/fd/${directory.fd}/${name}${newbornMark}`;
      server.listen(newborn);
      await once(server, "listening");
      // Only now it has the name that counts: a writer at work is never found with a socket that does not listen yet.
      const socket = join(writersDir, name);
      await rename(newborn, socket);
      server.unref();
      return new Writer(id, server, directory, socket);
    } catch (error) {
      server.close();
      await directory.close();
      throw error;
    }
  }

  /** A version that nobody sweeps until `done`, unless this process dies. */
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
