import { createHash } from "node:crypto";
import { open, rm, stat } from "node:fs/promises";
import type { Readable } from "node:stream";
import { type HostProcess, startHostProcess } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import { settleAll } from "../support/settle-all.ts";
import { digestFile, type FileDigest } from "./digest-file.ts";

/** It takes a while to read and hash a large tree. */
const packTimeoutMs = 30 * 60_000;
const stderrBytes = 4096;
/** The guest's binary exits with these codes. */
const exitChanged = 3;
const exitNoSpace = 4;
const exitTooMany = 5;
/**
 * A file may be removed or become shorter while it is read. If that happens again and again, the operation gives up.
 */
const mostTries = 8;

export interface UnpackOptions {
  /** The size and digest that the archive must have. */
  expected: FileDigest;
  /** The name of the archive in error messages. */
  part: string;
  /**
   * The unpacker rejects with `limit_reached` when the archive has more names than this: a few bytes of an archive may
   * take a block of the disk.
   */
  mostEntries?: number;
  signal: AbortSignal;
}

/**
 * Packs directory trees into archives and unpacks them, with the guest's binary: the same files give the same bytes,
 * whenever and wherever they are read.
 */
export class TreePacker {
  readonly #guestPath: string;

  constructor(guestPath: string) {
    this.#guestPath = guestPath;
  }

  /** Returns size and digest of the archive of these directories, and their stamp, without storing the archive. */
  digest(trees: readonly string[], signal: AbortSignal): Promise<FileDigest & { stamp: string }> {
    return this.#digest("--stamp", trees, signal);
  }

  /** Does the same, and everything on their filesystem survives a crash of the machine. */
  digestDurably(trees: readonly string[], signal: AbortSignal): Promise<FileDigest & { stamp: string }> {
    return this.#digest("--durable-stamp", trees, signal);
  }

  async #digest(
    option: string,
    trees: readonly string[],
    signal: AbortSignal,
  ): Promise<FileDigest & { stamp: string }> {
    const child = await this.#start(["pack", option, ...trees], signal, { extraFds: ["pipe"] });
    const hash = createHash("sha256");
    let sizeBytes = 0;
    const [, stamp] = await settleAll([
      this.#finish(child, signal, (data) => {
        hash.update(data);
        sizeBytes += data.byteLength;
      }),
      digestStream(child.readable(3)),
    ]);
    return { sizeBytes, sha256: hash.digest("hex"), stamp };
  }

  /**
   * Returns a stamp that shows quickly whether anything in these directories was changed since the last stamp: the
   * kernel sets the change time of a file whenever its contents, attributes or names change, and offers no way to set
   * it back. A stamp is valid only on the machine where it was taken.
   */
  async stamp(trees: readonly string[], signal: AbortSignal): Promise<string> {
    const [stamp = ""] = await this.stamps([trees], signal);
    return stamp;
  }

  /** Returns the stamps of several groups at the cost of one. */
  async stamps(groups: readonly (readonly string[])[], signal: AbortSignal): Promise<string[]> {
    const words = groups.flatMap((trees, index) => (index === 0 ? trees : ["--", ...trees]));
    const others = groups.slice(1);
    const child = await this.#start(["stamp", ...words], signal, { extraFds: others.map(() => "pipe") });
    const hash = createHash("sha256");
    const [, ...rest] = await settleAll([
      this.#finish(child, signal, (data) => void hash.update(data)),
      ...others.map((_, index) => digestStream(child.readable(index + 3))),
    ]);
    return [hash.digest("hex"), ...rest];
  }

  /** Writes the archive of these directories. It is durable on disk then. */
  write(trees: readonly string[], toPath: string, signal: AbortSignal): Promise<FileDigest> {
    return this.#write(trees, toPath, signal);
  }

  /**
   * Does the same for a directory that other processes write to: each file is in the archive as it was at some moment,
   * and a file that is removed in between is not in it.
   */
  writeLiving(tree: string, toPath: string, signal: AbortSignal): Promise<FileDigest> {
    return this.#write(["--living", tree], toPath, signal);
  }

  /**
   * Fills these empty directories from an archive. Rejects with `unrestorable` when it is not the expected archive;
   * then the caller removes what was unpacked.
   */
  async unpack(archive: string, into: readonly string[], options: UnpackOptions): Promise<void> {
    const { expected, part, mostEntries, signal } = options;
    const refuse = (because: string): SandboxError =>
      new SandboxError("unrestorable", `Cannot use ${part}: ${because}`, { details: { part, because } });
    const size = await stat(archive).then(
      (stats) => stats.size,
      () => undefined,
    );
    if (size === undefined) throw refuse("it is missing");
    if (size !== expected.sizeBytes) throw refuse(`it has ${size} bytes, and ${expected.sizeBytes} were saved`);
    const file = await open(archive, "r");
    try {
      const bound = mostEntries === undefined ? [] : ["--most-entries", String(mostEntries)];
      const child = await this.#start(["unpack", ...bound, ...into], signal, { stdin: file.fd });
      const [digest, unpacked] = await Promise.allSettled([
        digestFile(archive),
        this.#finish(child, signal, () => undefined),
      ]);
      if (digest.status === "rejected") throw digest.reason;
      if (digest.value.sha256 !== expected.sha256) throw refuse("its contents are not what was saved");
      if (unpacked.status === "fulfilled") return;
      const { reason } = unpacked as { reason: unknown };
      const exitCode = reason instanceof SandboxError ? reason.details["exitCode"] : undefined;
      if (exitCode === exitTooMany) throw tooMany(part, mostEntries);
      if (!(reason instanceof SandboxError) || exitCode !== 1) throw reason;
      throw refuse(String(reason.details["stderr"]));
    } finally {
      await file.close();
    }
  }

  async #write(words: readonly string[], toPath: string, signal: AbortSignal): Promise<FileDigest> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#writeOnce(words, toPath, signal);
      } catch (error) {
        await rm(toPath, { force: true });
        const isChanged = error instanceof SandboxError && error.details["exitCode"] === exitChanged;
        if (!isChanged || tries === mostTries) throw error;
      }
    }
  }

  async #writeOnce(words: readonly string[], toPath: string, signal: AbortSignal): Promise<FileDigest> {
    const file = await open(toPath, "w", 0o600);
    try {
      const child = await this.#start(["pack", ...words], signal);
      const hash = createHash("sha256");
      let sizeBytes = 0;
      await this.#finish(child, signal, async (data) => {
        hash.update(data);
        sizeBytes += data.byteLength;
        await file.writeFile(data);
      });
      await file.sync();
      return { sizeBytes, sha256: hash.digest("hex") };
    } finally {
      await file.close();
    }
  }

  #start(
    words: string[],
    signal: AbortSignal,
    options: { extraFds?: "pipe"[]; stdin?: number } = {},
  ): Promise<HostProcess> {
    return startHostProcess(this.#guestPath, words, { signal, timeoutMs: packTimeoutMs, ...options });
  }

  /** Reads all output of the tool. Rejects unless the tool has succeeded. */
  async #finish(child: HostProcess, signal: AbortSignal, take: (data: Buffer) => void | Promise<void>): Promise<void> {
    let stderr = "";
    for await (const { stream, data } of child) {
      if (stream === "stdout") await take(data);
      else if (stderr.length < stderrBytes) stderr += data.toString("utf8");
    }
    const { exitCode } = await child.wait();
    signal.throwIfAborted();
    if (exitCode === 0) return;
    const code = exitCode === exitNoSpace ? "no_space" : "storage_failed";
    const said = stderr.trim();
    throw new SandboxError(code, said === "" ? `Cannot use an archive: its tool exited with ${exitCode}` : said, {
      details: { exitCode, stderr: said.replace(/^Cannot unpack: /, "") },
    });
  }
}

function tooMany(part: string, mostEntries: number | undefined): SandboxError {
  return new SandboxError("limit_reached", `Cannot use ${part}: there are more than ${mostEntries} files in it`, {
    suggestion: "Each counts as 4096 bytes at least: raise the limit on bytes, or pack fewer files.",
    details: { part, mostEntries },
  });
}

async function digestStream(stream: Readable): Promise<string> {
  const hash = createHash("sha256");
  for await (const data of stream) hash.update(data as Buffer);
  return hash.digest("hex");
}
