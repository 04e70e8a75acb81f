import { z } from "zod";
import { EgressPolicy } from "./egress.ts";
import { LimitCeilings } from "./limits.ts";
import { DriverName } from "./sandbox.ts";

/** The drivers that are a boundary for hostile code. */
export const isolatingDrivers: DriverName[] = ["gvisor"];

/** The internet, and nothing of the machine or its networks: `*` does not stand for special addresses. */
export const internetOnly: EgressPolicy = { allow: ["*"], deny: [] };

/**
 * The ceilings of what sandboxes may be given. A key has one and so does the server, and a request has to be within
 * both. What is left out here is not bounded by it: a key without the verb `admin` never leaves `drivers` and `egress`
 * out.
 */
export const AccessPolicy = z.strictObject({
  drivers: z.array(DriverName).max(DriverName.options.length).optional(),
  /**
   * Each rule that a sandbox is given has to lie within one rule of `allow`. Both policies are asked at each
   * connection.
   */
  egress: EgressPolicy.optional(),
  limits: LimitCeilings.prefault({}),
});
export type AccessPolicy = z.output<typeof AccessPolicy>;

/**
 * The policy of a key: what it says, and for a key without the verb `admin` the safe reading of what it does not say.
 */
export function keyPolicy(verbs: readonly string[], { drivers, egress, limits }: AccessPolicy): AccessPolicy {
  if (verbs.includes("admin")) return { drivers, egress, limits };
  return { drivers: drivers ?? isolatingDrivers, egress: egress ?? internetOnly, limits };
}
