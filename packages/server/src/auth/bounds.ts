import {
  assertAllowed,
  ceilingsWith,
  driverFor,
  egressFor,
  limitsFor,
  memoryCounts,
  missingFor,
  policyCeiling,
  type Ceiling,
  type MachineDrivers,
  type ProfileBook,
} from "@atoll/guard";
import {
  builtInProfiles,
  internetOnly,
  SandboxError,
  standardProfile,
  type AccessPolicy,
  type AskedLimits,
  type DriverName,
  type EgressPolicy,
  type KeyInfo,
  type ResolvedProfile,
  type SandboxLimits,
  type SecurityProfile,
} from "@atoll/protocol";

/** What a request says about what a sandbox may use and do. */
export interface AskedTerms {
  profile: SecurityProfile;
  driver?: DriverName | undefined;
  limits: AskedLimits;
  /** When left out, the profile decides. */
  egress?: EgressPolicy | undefined;
}

/** What a sandbox is given. */
export interface Terms {
  profile: SecurityProfile;
  driver: DriverName;
  limits: SandboxLimits;
  egress: EgressPolicy;
}

/** What the requests of one key have to stay within: the policy of the key and that of the server. */
export class Bounds {
  /** The egress policy that bounds the key. It is stored beside an egress policy that it allowed. */
  readonly egressCeiling: EgressPolicy;
  readonly #profiles: ProfileBook;
  readonly #ceilings: readonly Ceiling[];
  readonly #policies: readonly { of: "key" | "server"; policy: AccessPolicy }[];

  /** `server` is the policy as `serverPolicy` returns it. Without a key it is the only bound. */
  constructor(profiles: ProfileBook, server: AccessPolicy, key?: Pick<KeyInfo, "policy">) {
    this.#profiles = profiles;
    this.#policies = [
      ...(key === undefined ? [] : [{ of: "key", policy: key.policy } as const]),
      { of: "server", policy: server },
    ];
    this.#ceilings = this.#policies.map(({ of, policy }) => policyCeiling(of, policy));
    this.egressCeiling = key?.policy.egress ?? server.egress ?? internetOnly;
  }

  /** Returns the profile of this name, or the one of a request that names none. */
  profileOf(name: string | undefined): SecurityProfile {
    return this.#profiles.get(name ?? this.#defaultName);
  }

  /** Decides about a sandbox, and returns all that the request left open. */
  terms(asked: AskedTerms, what: string, machine?: MachineDrivers): Terms {
    const { profile } = asked;
    const ceilings = ceilingsWith(profile, this.#ceilings);
    const driver = asked.driver ?? driverFor(profile, ceilings, machine) ?? "gvisor";
    assertAllowed({ operation: "create", ...asked, driver, ceilings, weakest: this.#weakest }, what);
    if (machine !== undefined && machine[driver].length > 0) throw notProvided(what, profile, driver, machine[driver]);
    if (asked.egress !== undefined) this.assertEgress(asked.egress, profile, what);
    const egress = asked.egress ?? egressFor(profile, this.#ceilings);
    return { profile, driver, limits: limitsFor(profile, asked.limits, ceilings), egress };
  }

  assertDriver(driver: DriverName, asked: string): void {
    assertAllowed({ operation: "driver", driver, ceilings: this.#ceilings }, asked);
  }

  assertEgress(egress: EgressPolicy, profile: SecurityProfile, asked: string): void {
    assertAllowed({ operation: "egress", profile, egress, ceilings: ceilingsWith(profile, this.#ceilings) }, asked);
  }

  /** Describes what a profile comes to for the key. */
  resolve(profile: SecurityProfile, machine: MachineDrivers): ResolvedProfile {
    const ceilings = ceilingsWith(profile, this.#ceilings);
    const driver = driverFor(profile, ceilings, machine);
    return {
      profile,
      isBuiltIn: builtInProfiles.includes(profile),
      isDefault: profile.name === this.#defaultName,
      missing: missingFor(profile, ceilings, machine),
      ...(driver === undefined ? {} : { driver }),
      limits: limitsFor(profile, {}, ceilings),
      egress: egressFor(profile, this.#ceilings),
      memoryCounts: memoryCounts(driver),
    };
  }

  /** The ceilings for the number of sandboxes at a time: the one of the key and the one of the server. */
  get mostSandboxes(): { of: "key" | "server"; allowed: number }[] {
    return this.#policies.flatMap(({ of, policy: { limits } }) =>
      limits.sandboxes === undefined ? [] : [{ of, allowed: limits.sandboxes }],
    );
  }

  get #defaultName(): string {
    const names = this.#policies.map(({ policy }) => policy.profile ?? policy.weakestProfile);
    return names.find((name) => name !== undefined) ?? standardProfile;
  }

  get #weakest(): { profile: SecurityProfile; ceiling: Ceiling }[] {
    return this.#policies.flatMap(({ of, policy }) =>
      policy.weakestProfile === undefined
        ? []
        : [{ profile: this.#profiles.get(policy.weakestProfile), ceiling: policyCeiling(of, policy) }],
    );
  }
}

function notProvided(
  what: string,
  { name }: SecurityProfile,
  driver: DriverName,
  missing: ResolvedProfile["missing"],
): SandboxError {
  const [first] = missing;
  const message = `Cannot ${what}: this machine cannot provide the profile ${name} with driver ${driver}`;
  return new SandboxError("unsupported", `${message}, because of ${missing.map((one) => one.what).join(", ")}`, {
    suggestion: first?.fix ?? "`atoll profile show` prints what is missing.",
    details: { profile: name, driver, missing },
  });
}
