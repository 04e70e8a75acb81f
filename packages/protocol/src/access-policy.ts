import { z } from "zod";
import { EgressPolicy } from "./egress.ts";
import { LimitCeilings } from "./limits.ts";
import { DriverName } from "./sandbox.ts";
import { ProfileName } from "./security-profile.ts";

/** The drivers that isolate hostile code. */
export const isolatingDrivers: DriverName[] = ["gvisor"];

/** Allows the internet, and nothing of the machine or its networks: `*` does not match special addresses. */
export const internetOnly: EgressPolicy = { allow: ["*"], deny: [] };

/**
 * Upper bounds of what sandboxes may be given: the weakest security profile, narrowed further by drivers, egress and
 * limits. A key has such a policy and so does the server, and a request has to be within both. A field that is left out
 * sets no bound, except that a key without the verb `admin` always has `drivers` and `egress`.
 */
export const AccessPolicy = z.strictObject({
  /** The profile of sandboxes whose request names none; when left out, `weakestProfile` or that of the server. */
  profile: ProfileName.optional(),
  /** Every other profile has to be at least as strict in everything. */
  weakestProfile: ProfileName.optional(),
  drivers: z.array(DriverName).max(DriverName.options.length).optional(),
  /**
   * Each rule of a sandbox's policy has to lie within one rule of `allow`. Both policies are checked at each
   * connection.
   */
  egress: EgressPolicy.optional(),
  limits: LimitCeilings.prefault({}),
});
export type AccessPolicy = z.output<typeof AccessPolicy>;

/**
 * Returns the policy of a key: its own fields and, for a key without the verb `admin`, the safe default for each field
 * that it leaves out.
 */
export function keyPolicy(verbs: readonly string[], policy: AccessPolicy): AccessPolicy {
  if (verbs.includes("admin")) return policy;
  return { ...policy, drivers: policy.drivers ?? isolatingDrivers, egress: policy.egress ?? internetOnly };
}
