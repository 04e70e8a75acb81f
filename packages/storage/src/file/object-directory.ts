import { mkdir, open, readdir, rename, rmdir, unlink } from "node:fs/promises";
import { join } from "node:path";
import { SandboxError } from "@atoll/protocol";
import type { ObjectVersion } from "../object-store.ts";
import { changeDirectory, removeEmptyDirectories, syncDirectory } from "./durable-directory.ts";
import { hasErrno } from "./file-failure.ts";
import { isVersion } from "./version.ts";

const headName = "head";
const headBeingMade = ".head";
const maxReadings = 100;

/**
 * One object on disk:
 *
 * head/<version>     an empty file whose name says which version is the object; never more than one
 * <version>          the bytes of a version
 * <version>.head/    a head that is being made for an object that does not exist
 *
 * Names of versions are never used twice, so each change of the head is one system call that exactly one of many
 * callers can succeed with: replacing renames `head/<old>` to `head/<new>` and removing unlinks `head/<old>`, both of
 * which fail when the old name is gone; creating renames a whole head over the place of an absent or empty one, which
 * fails when there is a name in it. So there is no lock that a process could hold when it dies or is stopped.
 */
export class ObjectDirectory {
  readonly path: string;
  readonly #root: string;

  /** `root` is the directory at which the removal of empty directories stops. */
  constructor(path: string, root: string) {
    this.path = path;
    this.#root = root;
  }

  get #head(): string {
    return join(this.path, headName);
  }

  bytes(version: ObjectVersion): string {
    return join(this.path, version);
  }

  /** The present version of the object, if there is one. */
  async current(): Promise<ObjectVersion | undefined> {
    for (let attempt = 1; ; attempt += 1) {
      const names = await namesIn(this.#head);
      const [name] = names;
      if (name === undefined) return undefined;
      if (names.length === 1 && isVersion(name)) return name;
      // A change of the head while it is read can show both the old name and the new one. A store never leaves more
      // than that.
      if (attempt === maxReadings) throw foreign(this.#head, names);
    }
  }

  /** Returns false if there is an object already. The bytes of the version must be durable. */
  async create(version: ObjectVersion): Promise<boolean> {
    const made = join(this.path, version + headBeingMade);
    await mkdir(made, { mode: 0o700 });
    const name = await open(join(made, version), "wx", 0o600);
    await name.close();
    await syncDirectory(made);
    // The bytes get their name before the head can refer to them, whatever order the file system writes in.
    await syncDirectory(this.path);
    try {
      await changeDirectory(this.path, () => rename(made, this.#head));
      return true;
    } catch (error) {
      if (!hasErrno(error, "ENOTEMPTY", "EEXIST")) throw error;
      await unlink(join(made, version));
      await rmdir(made);
      return false;
    }
  }

  /** Returns false if this is no longer the object's version. The bytes of the next one must be durable. */
  async replace(version: ObjectVersion, next: ObjectVersion): Promise<boolean> {
    await syncDirectory(this.path);
    const won = await this.#changeHead(() => rename(join(this.#head, version), join(this.#head, next)));
    if (won) await this.dropBytes(version).catch(leaveToSweep);
    return won;
  }

  /** Returns false if this is no longer the object's version. */
  async remove(version: ObjectVersion): Promise<boolean> {
    const won = await this.#changeHead(() => unlink(join(this.#head, version)));
    if (!won) return false;
    await this.dropBytes(version).catch(leaveToSweep);
    await this.removeIfEmpty().catch(leaveToSweep);
    return true;
  }

  /** Removes the bytes of a version that never was the object, or no longer is: it can never become it again. */
  async dropBytes(version: ObjectVersion): Promise<void> {
    try {
      await unlink(this.bytes(version));
    } catch (error) {
      if (!hasErrno(error, "ENOENT")) throw error;
    }
  }

  async removeIfEmpty(): Promise<void> {
    await removeEmptyDirectories(this.#head, this.#root);
  }

  /** All versions of which there are files here, also the current one and those that are being written. */
  async versions(): Promise<ObjectVersion[]> {
    const names = (await namesIn(this.path)).map((name) => name.replace(/\.head$/, ""));
    return [...new Set(names)].filter(isVersion);
  }

  /** Removes all files of a version whose writer is gone, unless it is the object. Returns whether there were any. */
  async sweep(version: ObjectVersion): Promise<boolean> {
    if ((await this.current()) === version) return false;
    const made = join(this.path, version + headBeingMade);
    for (const name of await namesIn(made)) await unlink(join(made, name));
    await rmdir(made).catch((error: unknown) => {
      if (!hasErrno(error, "ENOENT")) throw error;
    });
    await this.dropBytes(version);
    return true;
  }

  async #changeHead(change: () => Promise<void>): Promise<boolean> {
    try {
      await changeDirectory(this.#head, change);
      return true;
    } catch (error) {
      if (hasErrno(error, "ENOENT")) return false;
      throw error;
    }
  }
}

function foreign(path: string, names: readonly string[]): SandboxError {
  return new SandboxError("storage_failed", `Cannot read ${path}: it has files that no store makes`, {
    suggestion: "The store's directory was changed by hand. Remove the files that do not belong there.",
    details: { path, names: names.slice(0, 10) },
  });
}

/** Ignores a failure to clean up after a change: the change has taken place. */
function leaveToSweep(): void {}

async function namesIn(path: string): Promise<string[]> {
  try {
    return await readdir(path);
  } catch (error) {
    if (hasErrno(error, "ENOENT")) return [];
    throw error;
  }
}
