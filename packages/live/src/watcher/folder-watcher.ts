import { type Dirent, type FSWatcher, watch } from "node:fs";
import { readdir } from "node:fs/promises";
import { join, posix } from "node:path";
import { hasErrno } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";

/** The longest time that changes wait for a pause between them. */
const maxWaitMs = 200;
/** So many files at once are no edit but a checkout, which has to be complete before it can be compiled. */
const burst = { files: 10, quietMs: 100, maxWaitMs: 3_000 };

export interface FolderWatcherOptions {
  /** Whether a folder is looked into, by its name. */
  includesFolder: (name: string) => boolean;
  includesFile: (path: string) => boolean;
  /** Changes are reported when none has come for so long. */
  debounceMs: number;
  /** Gets the changed paths, relative to the folder; `undefined` when it is not known what changed. */
  onChange: (paths: ReadonlySet<string> | undefined) => void;
  onError: (error: SandboxError) => void;
}

/**
 * Watches a folder and those in it. Each directory has a watch of its own: the recursive watch of Node 20 goes blind
 * after an atomic save, and libraries that collect events hand them on too late. Events only say where to look; what
 * has changed is found by content.
 */
export class FolderWatcher implements Disposable {
  readonly #root: string;
  readonly #options: FolderWatcherOptions;
  readonly #watches = new Map<string, FSWatcher>();
  #changed = new Set<string>();
  #isUnsure = false;
  #timer: NodeJS.Timeout | undefined;
  #firstAt = 0;
  #isClosed = false;

  private constructor(root: string, options: FolderWatcherOptions) {
    this.#root = root;
    this.#options = options;
  }

  /** Resolves when every directory is watched. */
  static async start(root: string, options: FolderWatcherOptions): Promise<FolderWatcher> {
    const watcher = new FolderWatcher(root, options);
    try {
      await watcher.#add("");
    } catch (error) {
      watcher[Symbol.dispose]();
      throw error;
    }
    return watcher;
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    for (const each of this.#watches.values()) each.close();
    this.#watches.clear();
  }

  /** Watches a directory and those in it. The watch comes before the listing, so that nothing in between is missed. */
  async #add(directory: string): Promise<void> {
    if (this.#isClosed || this.#watches.has(directory)) return;
    try {
      const each = watch(join(this.#root, directory), { persistent: true }, (_event, name) => {
        if (name === null) this.#report(undefined);
        else void this.#onEvent(posix.join(directory, name));
      });
      each.on("error", () => this.#drop(directory));
      this.#watches.set(directory, each);
    } catch (error) {
      if (hasErrno(error, "ENOENT", "ENOTDIR")) return;
      throw watchFailure(this.#root, error);
    }
    for (const entry of await this.#list(directory)) {
      if (entry.isDirectory() && this.#options.includesFolder(entry.name))
        await this.#add(posix.join(directory, entry.name));
    }
  }

  async #list(directory: string): Promise<Dirent[]> {
    try {
      return await readdir(join(this.#root, directory), { withFileTypes: true });
    } catch (error) {
      if (hasErrno(error, "ENOENT", "ENOTDIR")) return [];
      throw error;
    }
  }

  async #onEvent(path: string): Promise<void> {
    if (this.#options.includesFile(path)) {
      this.#report(path);
      return;
    }
    const name = posix.basename(path);
    if (!this.#options.includesFolder(name) || /\.\w+$/.test(name)) return;
    // A name without ending may be a directory that is new, was renamed, or is gone.
    this.#drop(path);
    try {
      const before = this.#watches.size;
      await this.#add(path);
      if (this.#watches.size !== before) this.#report(undefined);
    } catch (error) {
      if (error instanceof SandboxError) this.#options.onError(error);
    }
  }

  /** Forgets the watches of a directory and of those that were in it. */
  #drop(directory: string): void {
    let isKnown = false;
    for (const [path, each] of this.#watches) {
      if (path !== directory && !path.startsWith(`${directory}/`)) continue;
      each.close();
      this.#watches.delete(path);
      isKnown = true;
    }
    if (isKnown) this.#report(undefined);
  }

  #report(path: string | undefined): void {
    if (this.#isClosed) return;
    if (path === undefined) this.#isUnsure = true;
    else this.#changed.add(path);
    const now = performance.now();
    if (this.#timer === undefined) this.#firstAt = now;
    clearTimeout(this.#timer);
    const isBurst = this.#changed.size > burst.files;
    const quietMs = isBurst ? Math.max(burst.quietMs, this.#options.debounceMs) : this.#options.debounceMs;
    const left = Math.max(0, this.#firstAt + (isBurst ? burst.maxWaitMs : maxWaitMs) - now);
    this.#timer = setTimeout(() => this.#flush(), Math.min(quietMs, left));
  }

  #flush(): void {
    this.#timer = undefined;
    const paths = this.#isUnsure ? undefined : this.#changed;
    this.#changed = new Set();
    this.#isUnsure = false;
    this.#options.onChange(paths);
  }
}

function watchFailure(root: string, cause: unknown): SandboxError {
  if (hasErrno(cause, "ENOSPC", "EMFILE")) {
    return new SandboxError("limit_reached", `Cannot watch ${root}: the machine allows no more watches`, {
      suggestion: "Raise fs.inotify.max_user_watches and fs.inotify.max_user_instances.",
      cause,
    });
  }
  return new SandboxError("file_error", `Cannot watch ${root}: ${String(cause)}`, { cause });
}
