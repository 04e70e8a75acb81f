import { readdir, readFile } from "node:fs/promises";
import { join, posix } from "node:path";
import { hasErrno } from "@atoll/host";

const sourceFile = /\.(ts|mts|js|mjs|json)$/;
/** Folders that contain no code of the app: packages, tests' output, and the files of tools. */
const skipped = new Set(["node_modules", ".git", "dist", "coverage"]);
const configFiles = new Set(["package.json", "package-lock.json", "tsconfig.json", "live.json"]);

/** The sources of an app by module id. */
export type Sources = Map<string, string>;

/** Whether a folder of an app can have code of it. */
export const isSourceFolder = (name: string): boolean => !skipped.has(name);

export interface SourceChange {
  /** Only these files are read again. */
  paths?: Iterable<string>;
  /** Used instead of what the files have. */
  sources?: Sources;
}

/** The sources of an app, as they were read last. */
export class AppSources {
  readonly #folder: string;
  #files: Sources = new Map();

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** What the files had when they were read last. */
  get current(): ReadonlyMap<string, string> {
    return this.#files;
  }

  async read({ paths, sources }: SourceChange): Promise<Sources> {
    const files: Sources = new Map(paths === undefined ? [] : this.#files);
    for (const path of paths ?? (await this.#list(""))) {
      try {
        files.set(path, await readFile(join(this.#folder, path), "utf8"));
      } catch (error) {
        if (!hasErrno(error, "ENOENT", "ENOTDIR", "EISDIR")) throw error;
        files.delete(path);
      }
    }
    this.#files = files;
    return new Map([...files, ...(sources ?? [])]);
  }

  async #list(directory: string): Promise<string[]> {
    const entries = await readdir(join(this.#folder, directory), { withFileTypes: true });
    const lists = entries.map(async (entry) => {
      const path = posix.join(directory, entry.name);
      if (entry.isDirectory()) return isSourceFolder(entry.name) ? this.#list(path) : [];
      return entry.isFile() && isModule(path) ? [path] : [];
    });
    return (await Promise.all(lists)).flat();
  }
}

/** Whether a path, relative to the folder of an app, is a module of it. */
export const isModule = (path: string): boolean =>
  sourceFile.test(path) && !path.endsWith(".d.ts") && !configFiles.has(path) && !/\.test\.\w+$/.test(path);
