import type { SandboxId, SandboxInfo } from "@atoll/protocol";
import { canSee, type Principal } from "../auth/principal.ts";
import type { PersistentSandboxes } from "../persistence/persistent-sandboxes.ts";
import { assertFreeFor, type Claimant, type SandboxFacts } from "./sandbox-facts.ts";
import { missingSandbox, type SandboxRoster } from "./sandbox-roster.ts";
import { matchesToken } from "./sandbox-token.ts";

export interface SandboxAccessOptions {
  roster: SandboxRoster;
  lasting: PersistentSandboxes;
}

/** How requests come to a sandbox: it is met, its token and its holder are asked, and then it is brought here if it is not. */
export class SandboxAccess {
  readonly #roster: SandboxRoster;
  readonly #lasting: PersistentSandboxes;

  constructor({ roster, lasting }: SandboxAccessOptions) {
    this.#roster = roster;
    this.#lasting = lasting;
  }

  /** Whether it can be used without going anywhere for it. */
  isHere(id: SandboxId): boolean {
    return this.#roster.get(id)?.facts.persistent === false || this.#lasting.has(id);
  }

  /** Finds out about one that is not here. What is not there at all costs as little. */
  async meet(id: SandboxId): Promise<void> {
    if (this.isHere(id)) return;
    await this.#lasting.meet(id).catch((error: unknown) => {
      // What is here of it is better than nothing.
      if (this.#roster.get(id) === undefined) throw error;
    });
  }

  /** Also of one that another server has, once it was met. */
  get(id: SandboxId): SandboxInfo {
    return this.#lasting.infoOf(id) ?? this.#roster.find(id).info();
  }

  /** One that may not be seen is refused in the words of one that is not there. */
  assertSees(principal: Principal, id: SandboxId): void {
    if (!canSee(principal, this.get(id))) throw missingSandbox(id);
  }

  /** Of a sandbox that is not there it is false, after the same work. */
  verifyToken(id: SandboxId, token: string): boolean {
    const facts = this.#lasting.factsOf(id) ?? this.#roster.get(id)?.facts;
    return matchesToken(facts ?? { tokenHash: "0".repeat(64) }, token);
  }

  /** Throws `in_use` while somebody else has it exclusively. */
  assertFree(id: SandboxId, by: Claimant): void {
    assertFreeFor(id, this.factsOf(id), by);
  }

  factsOf(id: SandboxId): SandboxFacts {
    return this.#lasting.factsOf(id) ?? this.#roster.find(id).facts;
  }

  /** Brings it here if it is not. It is not idle, and is not given away without need, until the result is called. */
  async enter(id: SandboxId, signal: AbortSignal): Promise<() => void> {
    if (this.isHere(id)) return this.open(id);
    // Until it is open, this keeps it here.
    const leave = this.#lasting.visit(id);
    try {
      await this.#lasting.bring(id, signal);
      return this.open(id);
    } finally {
      leave();
    }
  }

  /** Of one that is here. */
  open(id: SandboxId): () => void {
    const { clock, facts } = this.#roster.find(id);
    const ends = [clock.open(), ...(facts.persistent ? [this.#lasting.visit(id)] : [])];
    return () => {
      for (const end of ends) end();
    };
  }
}
