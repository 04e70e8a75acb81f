import type { SandboxId, SandboxInfo } from "@atoll/protocol";
import { canSee, type Principal } from "../auth/principal.ts";
import type { PersistentSandboxes } from "../persistence/persistent-sandboxes.ts";
import { missingSandbox, type SandboxRegistry } from "./sandbox-registry.ts";
import { assertFreeFor, type Claimant, type SandboxSettings } from "./sandbox-settings.ts";
import { matchesToken } from "./sandbox-token.ts";

export interface SandboxAccessOptions {
  registry: SandboxRegistry;
  persistent: PersistentSandboxes;
}

/**
 * How requests come to a sandbox: it is met, its token and its holder are asked, and then it is brought here if it is
 * not.
 */
export class SandboxAccess {
  readonly #registry: SandboxRegistry;
  readonly #persistent: PersistentSandboxes;

  constructor({ registry, persistent }: SandboxAccessOptions) {
    this.#registry = registry;
    this.#persistent = persistent;
  }

  /** Whether it can be used without going anywhere for it. */
  isHere(id: SandboxId): boolean {
    return this.#registry.get(id)?.facts.persistent === false || this.#persistent.has(id);
  }

  /** Finds out about one that is not here. What is not there at all costs as little. */
  async locate(id: SandboxId): Promise<void> {
    if (this.isHere(id)) return;
    await this.#persistent.locate(id).catch((error: unknown) => {
      // What is here of it is better than nothing.
      if (this.#registry.get(id) === undefined) throw error;
    });
  }

  /** Also of one that another server has, once it was met. */
  get(id: SandboxId): SandboxInfo {
    return this.#persistent.infoOf(id) ?? this.#registry.find(id).info();
  }

  /** One that may not be seen is refused in the words of one that is not there. */
  assertSees(principal: Principal, id: SandboxId): void {
    if (!canSee(principal, this.get(id))) throw missingSandbox(id);
  }

  /** Of a sandbox that is not there it is false, after the same work. */
  verifyToken(id: SandboxId, token: string): boolean {
    const facts = this.#persistent.settingsOf(id) ?? this.#registry.get(id)?.facts;
    return matchesToken(facts ?? { tokenHash: "0".repeat(64) }, token);
  }

  /** Throws `in_use` while somebody else has it exclusively. */
  assertFree(id: SandboxId, by: Claimant): void {
    assertFreeFor(id, this.settingsOf(id), by);
  }

  settingsOf(id: SandboxId): SandboxSettings {
    return this.#persistent.settingsOf(id) ?? this.#registry.find(id).facts;
  }

  /** Brings it here if it is not. It is not idle, and is not given away without need, until the result is called. */
  async acquire(id: SandboxId, signal: AbortSignal): Promise<() => void> {
    if (this.isHere(id)) return this.retain(id);
    // Until it is open, this keeps it here.
    const leave = this.#persistent.retain(id);
    try {
      await this.#persistent.bring(id, signal);
      return this.retain(id);
    } finally {
      leave();
    }
  }

  /** Of one that is here. */
  retain(id: SandboxId): () => void {
    const { clock, facts } = this.#registry.find(id);
    const ends = [clock.open(), ...(facts.persistent ? [this.#persistent.retain(id)] : [])];
    return () => {
      for (const end of ends) end();
    };
  }
}
