import type { SandboxId } from "@atoll/protocol";

const mostRemembered = 10_000;

/** Whose the sandboxes were that are gone, for those who still read their events. The oldest are forgotten first. */
export class PastOwners {
  #owners = new Map<SandboxId, string>();

  remember(id: SandboxId, owner: string): void {
    this.#owners.set(id, owner);
    const [oldest] = this.#owners.keys();
    if (this.#owners.size > mostRemembered && oldest !== undefined) this.#owners.delete(oldest);
  }

  get(id: SandboxId): string | undefined {
    return this.#owners.get(id);
  }
}
