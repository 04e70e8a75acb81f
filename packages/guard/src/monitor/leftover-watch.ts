import type { leftoverKinds } from "@atoll/protocol";

/** Something on the host that belongs to no living sandbox or application. */
export interface Leftover {
  kind: (typeof leftoverKinds)[number];
  /** The same text at each search. */
  what: string;
}

export interface LeftoverWatchOptions {
  find: () => Promise<Leftover[]>;
  /** Called once for each leftover. */
  onFound: (leftover: Leftover) => void;
  onError: (error: unknown) => void;
  /** The time between the end of a sandbox and a search, and between two searches. */
  checkMs: number;
}

/**
 * Looks for what sandboxes and applications leave behind, after they ended. What is found twice in a row is a leftover:
 * the first time it may just be going away, or be the beginning of another sandbox. It searches as long as there is
 * something, and otherwise only after an end, because a search looks at all processes of the host.
 */
export class LeftoverWatch {
  readonly #options: LeftoverWatchOptions;
  #suspects = new Set<string>();
  #reported = new Set<string>();
  #timer: NodeJS.Timeout | undefined;
  #isDue = false;
  #isClosed = false;

  constructor(options: LeftoverWatchOptions) {
    this.#options = options;
  }

  /** How many leftovers there are, by the last search. */
  get count(): number {
    return this.#reported.size;
  }

  /** Must be called when a sandbox or an application has ended. */
  ended(): void {
    if (this.#isClosed) return;
    // A search that goes on may have looked before the end.
    this.#isDue = true;
    this.#timer ??= setTimeout(() => void this.#check(), this.#options.checkMs).unref();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  async #check(): Promise<void> {
    this.#isDue = false;
    try {
      const found = await this.#options.find();
      const names = new Set(found.map(({ what }) => what));
      for (const leftover of found) {
        if (!this.#suspects.has(leftover.what) || this.#reported.has(leftover.what)) continue;
        this.#reported.add(leftover.what);
        this.#options.onFound(leftover);
      }
      this.#suspects = names;
      this.#reported = new Set([...this.#reported].filter((what) => names.has(what)));
    } catch (error) {
      this.#options.onError(error);
    } finally {
      this.#timer = undefined;
      if (this.#suspects.size > 0 || this.#isDue) this.ended();
    }
  }
}
