import { randomBytes } from "node:crypto";
import type { GuestFiles } from "@atoll/engine";
import type { SandboxId, WatchMessage } from "@atoll/protocol";
import { FileWatch, lostBefore } from "./file-watch.ts";

export interface WatchRequest {
  sandboxId: SandboxId;
  path: string;
  user: string;
  recursive: boolean;
  /** The id of the watch and the last received message, in order to continue. */
  watch?: string | undefined;
  cursor?: number | undefined;
}

interface Entry {
  watch: FileWatch;
  /** The request of the watch. Only a follower with the same request may continue it. */
  asked: string;
  followers: number;
  stop: AbortController;
  timer?: NodeJS.Timeout | undefined;
}

/** The file watches that clients follow. A watch without followers is kept for `graceMs`, for a client that returns. */
export class WatchHub {
  #entries = new Map<string, Entry>();
  #graceMs: number;

  constructor(options: { graceMs?: number } = {}) {
    this.#graceMs = options.graceMs ?? 60_000;
  }

  /**
   * Continues a watch, or begins one. If the watch to continue no longer exists, the new one begins with `lost`: what
   * happened in between is not known.
   */
  follow(
    files: Pick<GuestFiles, "watch">,
    request: WatchRequest,
    signal: AbortSignal,
  ): { id: string; messages: AsyncIterable<WatchMessage> } {
    const { sandboxId, path, user, recursive } = request;
    const asked = JSON.stringify([sandboxId, path, user, recursive]);
    const earlier = request.watch === undefined ? undefined : this.#entries.get(request.watch);
    if (earlier !== undefined && earlier.asked === asked) {
      return { id: earlier.watch.id, messages: this.#messages(earlier, { cursor: request.cursor, signal }) };
    }
    const id = randomBytes(12).toString("hex");
    const stop = new AbortController();
    const events = files.watch(path, { user, recursive, signal: stop.signal });
    const entry: Entry = {
      watch: new FileWatch(id, events, () => this.#entries.delete(id)),
      asked,
      followers: 0,
      stop,
    };
    this.#entries.set(id, entry);
    return { id, messages: this.#messages(entry, { isRestarted: request.watch !== undefined, signal }) };
  }

  close(): void {
    for (const entry of this.#entries.values()) {
      clearTimeout(entry.timer);
      entry.stop.abort(new Error("The server stops"));
    }
    this.#entries.clear();
  }

  #messages(
    entry: Entry,
    options: { cursor?: number | undefined; isRestarted?: boolean; signal: AbortSignal },
  ): AsyncIterable<WatchMessage> {
    entry.followers += 1;
    clearTimeout(entry.timer);
    let hasLeft = false;
    const leave = (): void => {
      if (hasLeft) return;
      hasLeft = true;
      options.signal.removeEventListener("abort", leave);
      entry.followers -= 1;
      if (entry.followers > 0) return;
      entry.timer = setTimeout(() => entry.stop.abort(new Error("No client follows this watch")), this.#graceMs);
      entry.timer.unref();
    };
    options.signal.addEventListener("abort", leave);
    if (options.signal.aborted) leave();
    return (async function* () {
      try {
        if (options.isRestarted === true) yield lostBefore(0);
        yield* entry.watch.follow({ cursor: options.cursor, signal: options.signal });
      } finally {
        leave();
      }
    })();
  }
}
