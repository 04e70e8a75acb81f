import type { WatchEvent } from "@atoll/engine";
import type { WatchMessage } from "@atoll/protocol";
import { Bell } from "../support/bell.ts";

/**
 * The limits of what is kept of one watch for a follower that returns. Memory is limited as well, because programs in
 * the sandbox choose how long a path is.
 */
const keptMessages = 4096;
const keptBytes = 2 * 1024 * 1024;

/**
 * One watch in a sandbox, with its recent messages. It goes on while its follower is away, so that nothing between two
 * connections is missed; what is no longer kept is reported as `lost`.
 */
export class FileWatch {
  readonly id: string;
  #kept: WatchMessage[] = [];
  #keptBytes = 0;
  #nextCursor = 1;
  #bell = new Bell();
  #end: { error?: unknown } | undefined;

  constructor(id: string, events: AsyncIterable<WatchEvent>, onEnd: () => void) {
    this.id = id;
    this.#pump(events)
      .then(
        () => {
          this.#end = {};
        },
        (error: unknown) => {
          this.#end = { error };
        },
      )
      .finally(() => {
        this.#bell.ring();
        onEnd();
      });
  }

  /** Yields the messages after `cursor`, then new ones. It ends with the watch, and throws the error that ended it. */
  async *follow(options: {
    cursor?: number | undefined;
    signal: AbortSignal;
  }): AsyncGenerator<WatchMessage, void, void> {
    let last = Math.min(options.cursor ?? 0, this.#nextCursor - 1);
    for (;;) {
      const oldest = this.#kept[0]?.cursor ?? this.#nextCursor;
      if (last + 1 < oldest) {
        last = oldest - 1;
        yield lostBefore(last);
        // More messages may have been dropped while the follower handled this one.
        continue;
      }
      for (const message of this.#kept.slice(last + 1 - oldest)) {
        last = message.cursor;
        yield message;
      }
      if (last + 1 < this.#nextCursor) continue;
      if (this.#end !== undefined) {
        if ("error" in this.#end) throw this.#end.error;
        return;
      }
      await this.#bell.wait(options.signal);
    }
  }

  async #pump(events: AsyncIterable<WatchEvent>): Promise<void> {
    for await (const { kind, isDirectory, cookie, path } of events) {
      const message = { cursor: this.#nextCursor, kind, isDirectory, cookie, path };
      this.#kept.push(message);
      this.#keptBytes += costOf(message);
      this.#nextCursor += 1;
      while (this.#kept.length > keptMessages || this.#keptBytes > keptBytes) this.#forgetOldest();
      this.#bell.ring();
    }
  }

  #forgetOldest(): void {
    const oldest = this.#kept.shift();
    if (oldest !== undefined) this.#keptBytes -= costOf(oldest);
  }
}

/** Returns the upper bound of a message's memory: an object, and two bytes for each character. */
function costOf({ path }: WatchMessage): number {
  return 128 + 2 * path.length;
}

/** Returns the message that earlier changes are unknown, so that the follower has to read the files again. */
export function lostBefore(cursor: number): WatchMessage {
  return { cursor, kind: "lost", isDirectory: false, cookie: 0, path: "" };
}
