import { assertAllowed } from "@atoll/guard";
import { SandboxId, type AuditLevel, type SandboxError, type SandboxInfo, type SecurityProfile } from "@atoll/protocol";
import { canSee, type Principal } from "../auth/principal.ts";
import type { PersistentSandboxes } from "../persistence/persistent-sandboxes.ts";
import { assertNotIsolated } from "./sandbox-isolation.ts";
import { missingSandbox, type SandboxRegistry } from "./sandbox-registry.ts";
import { assertNotHeldByOther, profileOf, type Requester, type SandboxSettings } from "./sandbox-settings.ts";
import { matchesToken } from "./sandbox-token.ts";
import type { ServerAudit } from "./server-audit.ts";

export interface SandboxAccessOptions {
  registry: SandboxRegistry;
  persistent: PersistentSandboxes;
}

/**
 * The way of a request to a sandbox: the sandbox is located, its token and hold are checked, and then it is acquired if
 * it is not here.
 */
export class SandboxAccess {
  readonly #registry: SandboxRegistry;
  readonly #persistent: PersistentSandboxes;

  constructor({ registry, persistent }: SandboxAccessOptions) {
    this.#registry = registry;
    this.#persistent = persistent;
  }

  /** Reports whether it can be used without being acquired. */
  isHere(id: SandboxId): boolean {
    return this.#registry.get(id)?.facts.persistent === false || this.#persistent.has(id);
  }

  /** Reads the state of a sandbox that is not here. It takes the same time for one that does not exist. */
  async locate(id: SandboxId): Promise<void> {
    if (this.isHere(id)) return;
    await this.#persistent.locate(id).catch((error: unknown) => {
      // The local copy of it is better than nothing.
      if (this.#registry.get(id) === undefined) throw error;
    });
  }

  /** Returns a sandbox, also one of another server after it was located. */
  get(id: SandboxId): SandboxInfo {
    return this.#persistent.infoOf(id) ?? this.#registry.find(id).info();
  }

  /** Throws the same error for a sandbox that may not be seen as for one that does not exist. */
  assertSees(principal: Principal, id: SandboxId): void {
    if (!canSee(principal, this.get(id))) throw missingSandbox(id);
  }

  /** Checks a token. For a sandbox that does not exist it returns false after the same work. */
  verifyToken(id: SandboxId, token: string): boolean {
    const facts = this.#persistent.settingsOf(id) ?? this.#registry.get(id)?.facts;
    return matchesToken(facts ?? { tokenHash: "0".repeat(64) }, token);
  }

  /** Throws while the sandbox is isolated, and `in_use` while another client holds it. */
  assertUsable(id: SandboxId, by: Requester): void {
    const settings = this.settingsOf(id);
    assertNotIsolated(id, settings);
    assertNotHeldByOther(id, settings, by);
  }

  settingsOf(id: SandboxId): SandboxSettings {
    return this.#persistent.settingsOf(id) ?? this.#registry.find(id).facts;
  }

  profileOf(id: SandboxId): SecurityProfile {
    return profileOf(this.settingsOf(id));
  }

  /** Returns the level that the profile of a sandbox asks for, if it has one. */
  auditLevelOf(id: string | undefined): AuditLevel | undefined {
    const { data } = SandboxId.safeParse(id);
    if (data === undefined) return undefined;
    return (this.#persistent.settingsOf(data) ?? this.#registry.get(data)?.facts)?.profile?.audit;
  }

  /** Connections to ports are requests to the program inside and not to this server, so a refusal is audited here. */
  assertPort(id: SandboxId, port: number, audit: ServerAudit): void {
    try {
      assertAllowed({ operation: "port", profile: this.profileOf(id), port }, `connect to sandbox ${id}`);
    } catch (error) {
      const { code, details } = error as SandboxError;
      const entry = { who: "server", what: "dial", sandboxId: id, result: code, details: { port, ...details } };
      audit.record(entry, "security");
      throw error;
    }
  }

  /**
   * Acquires a sandbox if it is not here, and retains it: until the returned function is called, it is not idle and not
   * handed over without need.
   */
  async acquire(id: SandboxId, signal: AbortSignal): Promise<() => void> {
    if (this.isHere(id)) return this.retain(id);
    // This retains the lease until the sandbox itself can be retained.
    const leave = this.#persistent.retain(id);
    try {
      await this.#persistent.acquire(id, signal);
      return this.retain(id);
    } finally {
      leave();
    }
  }

  /** Retains a sandbox that is here. */
  retain(id: SandboxId): () => void {
    const { clock, facts } = this.#registry.find(id);
    const ends = [clock.retain(), ...(facts.persistent ? [this.#persistent.retain(id)] : [])];
    return () => {
      for (const end of ends) end();
    };
  }
}
