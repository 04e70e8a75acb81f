import { SandboxError, type KeyInfo } from "@atoll/protocol";

/** How many sandboxes a key may have at a time, those that are being made included. */
export class SandboxQuota {
  #countOf: (keyId: string) => number;
  #beingMade = new Map<string, number>();

  constructor(countOf: (keyId: string) => number) {
    this.#countOf = countOf;
  }

  /** `admit` is called when a sandbox is really going to be made; `done` when it is, or never will be. */
  open({ id, maxSandboxes }: KeyInfo): { admit: () => void; done: () => void } {
    let isCounted = false;
    const change = (by: 1 | -1): void => void this.#beingMade.set(id, (this.#beingMade.get(id) ?? 0) + by);
    return {
      admit: () => {
        const used = this.#countOf(id) + (this.#beingMade.get(id) ?? 0);
        if (maxSandboxes !== undefined && used >= maxSandboxes) {
          throw new SandboxError("limit_reached", `Cannot create a sandbox: this key has ${used} already`, {
            suggestion: "Kill one that is not needed.",
            details: { limit: "maxSandboxes", used, allowed: maxSandboxes },
          });
        }
        isCounted = true;
        change(1);
      },
      done: () => {
        if (isCounted) change(-1);
        isCounted = false;
      },
    };
  }
}
