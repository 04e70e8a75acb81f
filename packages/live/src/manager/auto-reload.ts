import { messageOf } from "@atoll/host";
import { isModule, isSourceFolder } from "../compiler/app-sources.ts";
import type { LiveEventBody } from "../events/live-event.ts";
import { FolderWatcher } from "../watcher/folder-watcher.ts";
import type { LiveApp } from "./live-app.ts";

/** Reloads an app when its files change. Changes during a reload wait for the next one, so the newest code wins. */
export class AutoReload implements Disposable {
  readonly #app: LiveApp;
  #watcher: FolderWatcher | undefined;
  /** `undefined` stands for any file. */
  #waiting: Set<string> | undefined = new Set();
  #isReloading = false;
  #isDisposed = false;

  private constructor(app: LiveApp) {
    this.#app = app;
  }

  static async start(app: LiveApp, emit: (event: LiveEventBody) => void): Promise<AutoReload> {
    const reload = new AutoReload(app);
    reload.#watcher = await FolderWatcher.start(app.folder, {
      includesFolder: isSourceFolder,
      includesFile: isModule,
      debounceMs: app.config.debounceMs,
      onChange: (paths) => {
        emit({ type: "watch.change", files: [...(paths ?? [])] });
        reload.#change(paths);
      },
      onError: (error) => emit({ type: "log", level: "error", text: messageOf(error) }),
    });
    return reload;
  }

  [Symbol.dispose](): void {
    this.#isDisposed = true;
    this.#watcher?.[Symbol.dispose]();
  }

  #change(paths: ReadonlySet<string> | undefined): void {
    this.#waiting =
      paths === undefined || this.#waiting === undefined ? undefined : new Set([...this.#waiting, ...paths]);
    if (!this.#isReloading) void this.#reload();
  }

  async #reload(): Promise<void> {
    this.#isReloading = true;
    while (!this.#isDisposed && this.#waiting?.size !== 0) {
      const paths = this.#waiting;
      this.#waiting = new Set();
      try {
        await this.#app.reload(paths === undefined ? {} : { paths }, { cause: "watch" });
      } catch {
        // A reload that fails has emitted why, and the next change may repair it.
      }
    }
    this.#isReloading = false;
  }
}
