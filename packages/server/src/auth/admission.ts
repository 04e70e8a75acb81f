import { SandboxError, type AccessPolicy, type KeyInfo } from "@atoll/protocol";
import { Bounds } from "./bounds.ts";

/** How many sandboxes there are. */
export interface SandboxCounts {
  ofKey(keyId: string): number;
  all(): number;
}

/** What each key may make, and how many sandboxes there may be at a time, those that are being made included. */
export class Admission {
  readonly #server: AccessPolicy;
  readonly #counts: SandboxCounts;
  readonly #beingMade = new Map<string, number>();

  constructor(server: AccessPolicy, counts: SandboxCounts) {
    this.#server = server;
    this.#counts = counts;
  }

  boundsOf(key: KeyInfo): Bounds {
    return new Bounds(this.#server, key);
  }

  /** `admit` is called when a sandbox is really going to be made; `done` when it is, or never will be. */
  open(key: KeyInfo): { admit: () => void; done: () => void } {
    let isCounted = false;
    const change = (by: 1 | -1): void => void this.#beingMade.set(key.id, (this.#beingMade.get(key.id) ?? 0) + by);
    return {
      admit: () => {
        this.#assertPlace(key);
        isCounted = true;
        change(1);
      },
      done: () => {
        if (isCounted) change(-1);
        isCounted = false;
      },
    };
  }

  #assertPlace(key: KeyInfo): void {
    const making = this.#beingMade;
    const used = {
      key: this.#counts.ofKey(key.id) + (making.get(key.id) ?? 0),
      server: this.#counts.all() + [...making.values()].reduce((sum, count) => sum + count, 0),
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
