import { ruleBeyond } from "@atoll/guard";
import {
  internetOnly,
  SandboxError,
  SandboxLimits,
  type AccessPolicy,
  type AskedLimits,
  type DriverName,
  type EgressPolicy,
  type KeyInfo,
} from "@atoll/protocol";

/** The owner of a ceiling, as errors name it. */
type CeilingOwner = "key" | "server";

interface Ceiling {
  of: CeilingOwner;
  policy: AccessPolicy;
}

const names: Record<CeilingOwner, string> = { key: "this key", server: "this server" };

const remedies: Record<CeilingOwner, string> = {
  key: "An admin key can create a key that allows it (`atoll key create --help`).",
  server: "The operator of the server can allow it with the setting `policy`.",
};

const boundedLimits = ["memoryBytes", "cpus", "processes", "diskBytes", "tmpBytes"] as const;

/** What the requests of one key have to stay within: the policy of the key and that of the server. */
export class Bounds {
  /** The egress policy that bounds the key. It is stored beside an egress policy that it allowed. */
  readonly egressCeiling: EgressPolicy;
  readonly #ceilings: readonly Ceiling[];

  /** `server` is the policy as `serverPolicy` returns it. Without a key it is the only bound. */
  constructor(server: AccessPolicy, key?: Pick<KeyInfo, "policy">) {
    this.#ceilings = [
      ...(key === undefined ? [] : [{ of: "key", policy: key.policy } as const]),
      { of: "server", policy: server },
    ];
    this.egressCeiling = key?.policy.egress ?? server.egress ?? internetOnly;
  }

  assertDriver(driver: DriverName, asked: string): void {
    for (const { of, policy } of this.#ceilings) {
      if (policy.drivers === undefined || policy.drivers.includes(driver)) continue;
      const allowed = policy.drivers;
      throw new SandboxError("permission_denied", `Cannot ${asked}: ${names[of]} does not allow driver ${driver}`, {
        suggestion: `It allows ${allowed.join(", ") || "none"}. ${remedies[of]}`,
        details: { driver, ceiling: of, allowed },
      });
    }
  }

  assertEgress(egress: EgressPolicy, asked: string): void {
    for (const { of, policy } of this.#ceilings) {
      const rule = policy.egress === undefined ? undefined : ruleBeyond(egress, policy.egress);
      if (rule === undefined || policy.egress === undefined) continue;
      const { allow, deny } = policy.egress;
      const except = deny.length === 0 ? "" : ` except ${deny.join(", ")}`;
      throw new SandboxError(
        "permission_denied",
        `Cannot ${asked}: the egress rule ${rule} is beyond the ceiling of ${names[of]}`,
        {
          suggestion:
            `The ceiling is ${allow.join(", ") || "nothing"}${except}; special addresses have to be named. ` +
            remedies[of],
          details: { rule, ceiling: of, allowed: policy.egress },
        },
      );
    }
  }

  /** Returns all limits. A limit that was not asked for has its default, lowered to the ceilings. */
  limitsFor(asked: AskedLimits, what: string): SandboxLimits {
    const limits = SandboxLimits.parse(asked);
    for (const limit of boundedLimits) {
      for (const { of, policy } of this.#ceilings) {
        const allowed = policy.limits[limit];
        if (allowed === undefined || limits[limit] <= allowed) continue;
        if (asked[limit] === undefined) limits[limit] = allowed;
        else throw beyondLimit(what, { limit, asked: limits[limit], allowed, of });
      }
    }
    return limits;
  }

  /** The ceilings for the number of sandboxes at a time: the one of the key and the one of the server. */
  get mostSandboxes(): { of: CeilingOwner; allowed: number }[] {
    return this.#ceilings.flatMap(({ of, policy: { limits } }) =>
      limits.sandboxes === undefined ? [] : [{ of, allowed: limits.sandboxes }],
    );
  }
}

function beyondLimit(
  what: string,
  {
    limit,
    asked,
    allowed,
    of,
  }: { limit: (typeof boundedLimits)[number]; asked: number; allowed: number; of: CeilingOwner },
): SandboxError {
  const message = `Cannot ${what}: ${limit} ${asked} is over ${allowed}, the ceiling of ${names[of]}`;
  return new SandboxError("limit_reached", message, {
    suggestion: `Ask for ${allowed} at most. ${remedies[of]}`,
    details: { limit, asked, allowed, ceiling: of },
  });
}
