import { weakerIn, type ProfileBook } from "@atoll/guard";
import {
  SandboxError,
  standardProfile,
  type AccessPolicy,
  type AuditLevel,
  type KeyInfo,
  type ResolvedProfile,
} from "@atoll/protocol";
import { Bounds, type AskedTerms, type Terms } from "./bounds.ts";
import type { MachineCheck } from "./machine-check.ts";

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
  readonly #profiles: ProfileBook;
  readonly #machine: Pick<MachineCheck, "drivers">;
  readonly #server: AccessPolicy;
  readonly #auditLevel: AuditLevel;
  readonly #counts: SandboxCounts;
  readonly #beingCreated = new Map<string, number>();

  constructor(options: {
    profiles: ProfileBook;
    machine: Pick<MachineCheck, "drivers">;
    server: AccessPolicy;
    /** What is audited of sandboxes without a profile. */
    auditLevel: AuditLevel;
    counts: SandboxCounts;
  }) {
    this.#profiles = options.profiles;
    this.#machine = options.machine;
    this.#server = options.server;
    this.#auditLevel = options.auditLevel;
    this.#counts = options.counts;
  }

  boundsOf(key: KeyInfo): Bounds {
    return new Bounds(this.#profiles, this.#server, key);
  }

  /** Decides about a sandbox that the key wants to have, and returns all that its request left open. */
  async terms(
    key: KeyInfo,
    asked: Omit<AskedTerms, "profile"> & { profile?: string | undefined },
    what: string,
  ): Promise<Terms> {
    const bounds = this.boundsOf(key);
    const profile = bounds.profileOf(asked.profile);
    // A profile that was chosen is a promise, so it is checked before anything starts.
    const machine = profile.name === standardProfile ? undefined : await this.#machine.drivers();
    return bounds.terms({ ...asked, profile }, what, machine);
  }

  /** Describes what each profile comes to for the key on this machine. */
  async resolve(key: KeyInfo): Promise<ResolvedProfile[]> {
    const machine = await this.#machine.drivers();
    const bounds = this.boundsOf(key);
    return this.#profiles.all().map((profile) => this.#withAuditLevel(bounds.resolve(profile, machine)));
  }

  async resolveOne(key: KeyInfo, name: string): Promise<ResolvedProfile> {
    const profile = this.#profiles.get(name);
    return this.#withAuditLevel(this.boundsOf(key).resolve(profile, await this.#machine.drivers()));
  }

  /** What is audited under `standard` is a setting of the server. */
  #withAuditLevel(resolved: ResolvedProfile): ResolvedProfile {
    const { profile } = resolved;
    if (profile.name !== standardProfile) return resolved;
    return { ...resolved, profile: { ...profile, audit: this.#auditLevel } };
  }

  /** Throws if the policy of a new key names a profile that does not exist, or a default that is beyond the weakest. */
  assertUsable({ profile, weakestProfile }: AccessPolicy): void {
    const most = weakestProfile === undefined ? undefined : this.#profiles.get(weakestProfile);
    const own = profile === undefined ? undefined : this.#profiles.get(profile);
    const more = most === undefined || own === undefined ? undefined : weakerIn(own, most);
    if (most === undefined || own === undefined || more === undefined) return;
    throw new SandboxError(
      "invalid_argument",
      `Cannot use the profile ${own.name} as the default: it is weaker than ${most.name}, because it has ${more}`,
      { suggestion: "The default has to be at least as strict as the weakest profile." },
    );
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
