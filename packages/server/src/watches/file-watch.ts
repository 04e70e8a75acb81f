import type { WatchEvent } from "@atoll/engine";
import type { WatchMessage } from "@atoll/protocol";
import { Bell } from "../support/bell.ts";

/** Of one watch that are kept for a follower that comes back. */
const keptMessages = 4096;

/**
 * One watch in a sandbox, and what it has told. It goes on while its follower is away, so that nothing between two connections is missed; what is
 * no longer kept is told as `lost`.
 */
export class FileWatch {
  readonly id: string;
  #kept: WatchMessage[] = [];
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

  /** What came after `cursor`, then whatever comes. Ends with the watch; what ended it is thrown. */
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
      this.#kept.push({ cursor: this.#nextCursor, kind, isDirectory, cookie, path });
      this.#nextCursor += 1;
      if (this.#kept.length > keptMessages) this.#kept.shift();
      this.#bell.ring();
    }
  }
}

/** Changes before this one are not known: look again. */
export function lostBefore(cursor: number): WatchMessage {
  return { cursor, kind: "lost", isDirectory: false, cookie: 0, path: "" };
}
