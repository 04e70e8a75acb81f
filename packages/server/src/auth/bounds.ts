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
import { ruleBeyond } from "../egress/compile-policy.ts";

/** Whose ceiling it is, as errors say it. */
type Holder = "key" | "server";

interface Ceiling {
  of: Holder;
  policy: AccessPolicy;
}

const names: Record<Holder, string> = { key: "this key", server: "this server" };

const remedies: Record<Holder, string> = {
  key: "An admin key can make a key that allows it (`atoll key create --help`).",
  server: "Who runs the server can allow it with the setting `policy`.",
};

const boundedLimits = ["memoryBytes", "cpus", "processes", "diskBytes", "tmpBytes"] as const;

/** What requests of one key have to be within: the policy of the key and that of the server. */
export class Bounds {
  /** What holds for the key, to be kept beside an egress policy that was allowed by it. */
  readonly egressCeiling: EgressPolicy;
  readonly #ceilings: readonly Ceiling[];

  /** The server's policy as `serverPolicy` has it; without a key it holds alone. */
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
          suggestion: `The ceiling is ${allow.join(", ") || "nothing"}${except}; special addresses have to be named. ${remedies[of]}`,
          details: { rule, ceiling: of, allowed: policy.egress },
        },
      );
    }
  }

  /** All limits: those that were asked for, and for the others the defaults, as far as the ceilings let them. */
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

  /** How many sandboxes there may be at a time, of the key and of all. */
  get mostSandboxes(): { of: Holder; allowed: number }[] {
    return this.#ceilings.flatMap(({ of, policy: { limits } }) =>
      limits.sandboxes === undefined ? [] : [{ of, allowed: limits.sandboxes }],
    );
  }
}

function beyondLimit(
  what: string,
  { limit, asked, allowed, of }: { limit: (typeof boundedLimits)[number]; asked: number; allowed: number; of: Holder },
): SandboxError {
  const message = `Cannot ${what}: ${limit} ${asked} is over ${allowed}, the ceiling of ${names[of]}`;
  return new SandboxError("limit_reached", message, {
    suggestion: `Ask for ${allowed} at most. ${remedies[of]}`,
    details: { limit, asked, allowed, ceiling: of },
  });
}
