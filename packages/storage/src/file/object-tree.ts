import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { isKeyPart } from "../object-key.ts";
import { removeEmptyDirectories } from "./durable-directory.ts";
import { hasErrno } from "./file-failure.ts";
import { ObjectDirectory } from "./object-directory.ts";

/** No key contains this, so the object `a` and the objects below `a/` never share a path. */
const objectMark = "~";

export interface TreeEntry {
  key: string;
  directory: ObjectDirectory;
}

/** The files of a store: a directory per slash of a key, and one per object. */
export class ObjectTree {
  readonly root: string;

  constructor(root: string) {
    this.root = root;
  }

  at(key: string): ObjectDirectory {
    return new ObjectDirectory(join(this.root, key) + objectMark, this.root);
  }

  /**
   * Yields every object that exists, has existed or is being created and whose key starts with `prefix`, in the order
   * of keys. With `prune`, empty directories are removed during the walk.
   */
  async *walk(prefix: string, options: { prune?: boolean } = {}): AsyncIterable<TreeEntry> {
    const slash = prefix.lastIndexOf("/") + 1;
    yield* this.#walk(prefix.slice(0, slash), prefix.slice(slash), options.prune ?? false);
  }

  async *#walk(parent: string, start: string, prune: boolean): AsyncIterable<TreeEntry> {
    const names = await this.#namesBelow(parent);
    if (prune && names.length === 0 && parent !== "") {
      await removeEmptyDirectories(join(this.root, parent.slice(0, -1)), this.root);
    }
    for (const name of names) {
      if (!name.startsWith(start)) continue;
      const key = parent + name;
      if (key.endsWith("/")) yield* this.#walk(key, "", prune);
      else yield { key, directory: this.at(key) };
    }
  }

  /**
   * The names of objects, and those of directories with a slash: in this order the keys below them are in order, too.
   * Files that no store makes, and names that no key can have, are ignored.
   */
  async #namesBelow(parent: string): Promise<string[]> {
    try {
      const entries = await readdir(join(this.root, parent), { withFileTypes: true });
      const names = entries.flatMap((entry) => {
        const isObject = entry.name.endsWith(objectMark);
        const part = isObject ? entry.name.slice(0, -objectMark.length) : entry.name;
        if (!entry.isDirectory() || !isKeyPart(part)) return [];
        return isObject ? part : `${part}/`;
      });
      return names.toSorted(inByteOrder);
    } catch (error) {
      if (hasErrno(error, "ENOENT", "ENOTDIR")) return [];
      throw error;
    }
  }
}

/** Keys are ASCII, so comparing strings compares their bytes. */
const inByteOrder = (one: string, two: string): number => (one < two ? -1 : 1);
