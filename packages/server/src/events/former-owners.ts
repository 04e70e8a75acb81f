import type { SandboxId } from "@atoll/protocol";

const mostRemembered = 10_000;

/** The last known owners of sandboxes that events were about. The oldest are forgotten first. */
export class FormerOwners {
  #owners = new Map<SandboxId, string>();

  remember(id: SandboxId, owner: string): void {
    this.#owners.delete(id);
    this.#owners.set(id, owner);
    const [oldest] = this.#owners.keys();
    if (this.#owners.size > mostRemembered && oldest !== undefined) this.#owners.delete(oldest);
  }

  get(id: SandboxId): string | undefined {
    return this.#owners.get(id);
  }
}
