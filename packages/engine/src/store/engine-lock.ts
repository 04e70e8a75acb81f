import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdir, open, readdir, readFile, realpath, rename, rm, writeFile, type FileHandle } from "node:fs/promises";
import { connect, createServer, type Server } from "node:net";
import { dirname, join } from "node:path";
import { hasErrno } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import { markOf, type DirectoryMark } from "./directory-mark.ts";

/** Other engines may try for the same lock and give up. After this many attempts, one of them must have it. */
const mostAttempts = 100;

/**
 * Makes sure that one engine uses a data directory. `lock/holder/` has at most one name in it, and `lock/<name>.sock`
 * is a socket of that name, which listens as long as the holder lives, however the holder ends. To take the lock is one
 * rename, which only one of many processes can win: either a directory with a name in it becomes `holder` where there
 * is none, or a dead holder's name becomes the process's own. The kernel finds sockets of files from all containers of
 * a machine. `engine.lock` only says to people who holds the lock.
 */
export class EngineLock {
  /**
   * The mark of `lock/`. The holder has it open: while it lives, no other process finds a directory with this device
   * and inode except this one, whose lock is taken.
   */
  readonly directory: DirectoryMark;
  readonly #path: string;
  readonly #claim: Claim;

  private constructor(path: string, claim: Claim, directory: DirectoryMark) {
    this.directory = directory;
    this.#path = path;
    this.#claim = claim;
  }

  static async acquire(path: string): Promise<EngineLock> {
    const directory = await realpath(dirname(path));
    const claim = await Claim.begin(join(directory, "lock"));
    try {
      if (!(await claim.take())) {
        const pid = (await readFile(path, "utf8").catch(() => "")).trim() || "unknown";
        throw new SandboxError("in_use", `Cannot use the data directory ${directory}: process ${pid} uses it`, {
          suggestion: `Stop process ${pid}, or use another data directory.`,
          details: { directory, pid },
        });
      }
      await writeFile(path, `${process.pid}\n`, { mode: 0o600 });
      return new EngineLock(path, claim, await claim.mark());
    } catch (error) {
      await claim.end();
      throw error;
    }
  }

  async release(): Promise<void> {
    try {
      await rm(this.#path, { force: true });
    } finally {
      await this.#claim.end();
    }
  }
}

/** A process that wants the lock, or has it, with a socket that says that it lives. */
class Claim {
  readonly #dir: string;
  readonly #handle: FileHandle;
  readonly #server: Server;
  readonly #name = randomBytes(8).toString("hex");

  private constructor(dir: string, handle: FileHandle, server: Server) {
    this.#dir = dir;
    this.#handle = handle;
    this.#server = server;
  }

  /**
   * The socket listens before its name appears anywhere: a living holder is never found with a socket that does not
   * listen.
   */
  static async begin(dir: string): Promise<Claim> {
    await mkdir(dir, { recursive: true, mode: 0o700 });
    const server = createServer((socket) => {
      socket.destroy();
    });
    const claim = new Claim(dir, await open(dir, "r"), server);
    try {
      server.listen(claim.#address(claim.#name));
      await once(server, "listening");
      // The lock alone does not keep a program running that has nothing else to do.
      server.unref();
      return claim;
    } catch (error) {
      await claim.#handle.close();
      throw error;
    }
  }

  /** Returns the mark of the lock's directory. */
  async mark(): Promise<DirectoryMark> {
    return markOf(await this.#handle.stat({ bigint: true }));
  }

  /** Returns false if a living process has the lock. */
  async take(): Promise<boolean> {
    for (let attempt = 0; attempt < mostAttempts; attempt += 1) {
      const [holder] = await namesIn(this.#holderDir);
      if (holder !== undefined && (await this.#isAlive(holder))) return false;
      if (await (holder === undefined ? this.#takeFree() : this.#takeFrom(holder))) return true;
    }
    return false;
  }

  /** Ends the claim, also of a process that does not have the lock. Idempotent. */
  async end(): Promise<void> {
    await rm(join(this.#holderDir, this.#name), { force: true });
    if (!this.#server.listening) return;
    await new Promise((resolve) => this.#server.close(resolve));
    await rm(this.#socket(this.#name), { force: true });
    await this.#handle.close();
  }

  get #holderDir(): string {
    return join(this.#dir, "holder");
  }

  #socket(name: string): string {
    return join(this.#dir, `${name}.sock`);
  }

  /**
   * The path goes through the descriptor, because addresses of sockets are short and paths of directories may be long.
   */
  #address(name: string): string {
    return `/proc/self/fd/${this.#handle.fd}/${name}.sock`;
  }

  /** Returns false if another process was faster. */
  async #takeFree(): Promise<boolean> {
    const prepared = join(this.#dir, `${this.#name}.new`);
    await mkdir(prepared, { recursive: true, mode: 0o700 });
    await writeFile(join(prepared, this.#name), "");
    const isTaken = await renamed(prepared, this.#holderDir);
    if (!isTaken) await rm(prepared, { recursive: true, force: true });
    return isTaken;
  }

  /** Returns false if another process was faster. */
  async #takeFrom(dead: string): Promise<boolean> {
    if (!(await renamed(join(this.#holderDir, dead), join(this.#holderDir, this.#name)))) return false;
    await rm(this.#socket(dead), { force: true });
    return true;
  }

  /** A connection needs only the existence of the process at the other end: a stopped process is alive, too. */
  async #isAlive(name: string): Promise<boolean> {
    return new Promise((resolve) => {
      const socket = connect(this.#address(name));
      socket.on("connect", () => {
        socket.destroy();
        resolve(true);
      });
      socket.on("error", (error) => {
        resolve(!hasErrno(error, "ECONNREFUSED") && !hasErrno(error, "ENOENT"));
      });
    });
  }
}

async function namesIn(directory: string): Promise<string[]> {
  return readdir(directory).catch((error: unknown) => {
    if (hasErrno(error, "ENOENT")) return [];
    throw error;
  });
}

/** Returns false if the source is gone, or something is in the place of the target. */
async function renamed(from: string, to: string): Promise<boolean> {
  try {
    await rename(from, to);
    return true;
  } catch (error) {
    if (hasErrno(error, "ENOENT") || hasErrno(error, "ENOTEMPTY") || hasErrno(error, "EEXIST")) return false;
    throw error;
  }
}
