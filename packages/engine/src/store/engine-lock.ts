import { createHash } from "node:crypto";
import { once } from "node:events";
import { readFile, realpath, rm, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { dirname } from "node:path";
import { SandboxError } from "@atoll/protocol";
import { hasErrno } from "../support/errno.ts";

/**
 * One engine per data directory. The lock is a listening socket with a name in the kernel's abstract namespace: taking it is
 * atomic, and it is free again the moment its holder dies, however it dies. It does not reach across network namespaces. The file
 * only tells a person who holds it.
 */
export class EngineLock {
  #server: Server;
  #path: string;

  private constructor(server: Server, path: string) {
    this.#server = server;
    this.#path = path;
  }

  static async acquire(path: string): Promise<EngineLock> {
    const directory = await realpath(dirname(path));
    const name = `\0atoll-engine-${createHash("sha256").update(directory).digest("hex").slice(0, 32)}`;
    const server = createServer((socket) => {
      socket.destroy();
    });
    server.listen(name);
    try {
      await once(server, "listening");
    } catch (error) {
      if (!hasErrno(error, "EADDRINUSE")) throw error;
      const pid = (await readFile(path, "utf8").catch(() => "")).trim() || "unknown";
      throw new SandboxError("in_use", `Cannot use the data directory ${directory}: process ${pid} uses it`, {
        suggestion: `Stop process ${pid}, or use another data directory.`,
        details: { directory, pid },
      });
    }
    // The lock alone does not keep a program running that has nothing else to do.
    server.unref();
    try {
      await writeFile(path, `${process.pid}\n`, { mode: 0o600 });
    } catch (error) {
      await closed(server);
      throw error;
    }
    return new EngineLock(server, path);
  }

  async release(): Promise<void> {
    try {
      await rm(this.#path, { force: true });
    } finally {
      await closed(this.#server);
    }
  }
}

async function closed(server: Server): Promise<void> {
  await new Promise((resolve) => server.close(resolve));
}
