import { SandboxError, type AccessPolicy, type KeyInfo } from "@atoll/protocol";
import { Bounds } from "./bounds.ts";

/** Counts the sandboxes that exist. */
export interface SandboxCounts {
  ofKey(keyId: string): number;
  all(): number;
}

/**
 * Decides what each key may create, and limits the number of sandboxes at a time, including those that are being
 * created.
 */
export class Admission {
  readonly #server: AccessPolicy;
  readonly #counts: SandboxCounts;
  readonly #beingCreated = new Map<string, number>();

  constructor(server: AccessPolicy, counts: SandboxCounts) {
    this.#server = server;
    this.#counts = counts;
  }

  boundsOf(key: KeyInfo): Bounds {
    return new Bounds(this.#server, key);
  }

  /** The caller calls `admit` when a sandbox is really going to be created, and `done` when it exists or never will. */
  open(key: KeyInfo): { admit: () => void; done: () => void } {
    let isCounted = false;
    const change = (by: 1 | -1): void =>
      void this.#beingCreated.set(key.id, (this.#beingCreated.get(key.id) ?? 0) + by);
    return {
      admit: () => {
        this.#assertBelowCeiling(key);
        isCounted = true;
        change(1);
      },
      done: () => {
        if (isCounted) change(-1);
        isCounted = false;
      },
    };
  }

  #assertBelowCeiling(key: KeyInfo): void {
    const creating = this.#beingCreated;
    const used = {
      key: this.#counts.ofKey(key.id) + (creating.get(key.id) ?? 0),
      server: this.#counts.all() + [...creating.values()].reduce((sum, count) => sum + count, 0),
    };
    for (const { of, allowed } of this.boundsOf(key).mostSandboxes) {
      if (used[of] < allowed) continue;
      throw new SandboxError("limit_reached", `Cannot create a sandbox: this ${of} has ${used[of]} already`, {
        suggestion: `Its ceiling is ${allowed}. Kill one that is not needed.`,
        details: { limit: "sandboxes", used: used[of], allowed, ceiling: of },
      });
    }
  }
}
