import {
  allowsOperation,
  type DriverName,
  type EgressPolicy,
  type Operation,
  type SecurityProfile,
} from "@atoll/protocol";
import { ruleBeyond } from "../egress/compile-policy.ts";
import { weakerIn } from "../profiles/weaker-in.ts";
import type { Severity } from "../scan/finding.ts";
import { boundedLimits, type BoundedLimit, type Ceiling, type CeilingOwner } from "./ceiling.ts";

/** A sensitive operation, with everything that the decision depends on. */
export type GuardRequest =
  | {
      operation: "create";
      profile: SecurityProfile;
      /** The weakest profiles that the key and the server allow. */
      weakest?: readonly { profile: SecurityProfile; ceiling: Ceiling }[];
      driver: DriverName;
      limits: Partial<Record<BoundedLimit, number | undefined>>;
      ceilings: readonly Ceiling[];
    }
  | { operation: "driver"; driver: DriverName; ceilings: readonly Ceiling[] }
  | { operation: "egress"; profile: SecurityProfile; egress: EgressPolicy; ceilings: readonly Ceiling[] }
  /** Makes a port reachable from outside. */
  | { operation: "port"; profile: SecurityProfile; port: number }
  /** Loads a module, with the worst that a scan found in it. */
  | { operation: "code_load"; profile: SecurityProfile; module: string; severity?: Severity | undefined }
  /** Imports a module that is not the app's own. `needs` is what the module makes possible. */
  | { operation: "import"; profile: SecurityProfile; module: string; needs?: Operation | undefined };

export interface Refusal {
  allowed: false;
  /** The name of the rule that refuses, such as `limits.memoryBytes` or `restrictedModules`. */
  rule: string;
  /** The reason, as text that follows "Cannot …: ". */
  why: string;
  ceiling: CeilingOwner;
  suggestion: string;
  /** Facts for programs. */
  details: Record<string, unknown>;
}

export type Decision = { allowed: true } | Refusal;

const allowed: Decision = { allowed: true };

/** Findings of a scan are hints, which hostile code avoids. So they refuse code only where it must not be hostile. */
const refusedSeverities: Record<SecurityProfile["isolation"], readonly Severity[]> = {
  high: ["high", "critical"],
  medium: ["critical"],
  low: [],
};

/**
 * Decides about one sensitive operation. It is the only place where this is decided, for sandboxes and for live
 * applications. The decision depends on the request alone and takes microseconds; callers make an error and a line in
 * the audit log out of a refusal.
 */
export function decide(request: GuardRequest): Decision {
  switch (request.operation) {
    case "create":
      return decideCreate(request);
    case "driver":
      return decideDriver(request);
    case "egress":
      return decideEgress(request);
    case "port":
      return decideOperation(request.profile, "network_server", `port ${request.port} cannot be reached from outside`);
    case "code_load":
      return decideCodeLoad(request);
    case "import":
      return decideImport(request);
  }
}

function decideCreate(request: Extract<GuardRequest, { operation: "create" }>): Decision {
  const { profile, weakest = [], driver, limits, ceilings } = request;
  for (const { profile: most, ceiling } of weakest) {
    const more = weakerIn(profile, most);
    if (more === undefined) continue;
    const { of, name, remedy } = ceiling;
    return {
      allowed: false,
      rule: "weakestProfile",
      why: `${name} allows no profile that is weaker than ${most.name}, and ${profile.name} has ${more}`,
      ceiling: of,
      suggestion: `Ask for the profile ${most.name}, or a stricter one. ${remedy}`,
      details: { profile: profile.name, weakestProfile: most.name, has: more },
    };
  }
  const byDriver = decideDriver({ driver, ceilings });
  return byDriver.allowed ? decideLimits(limits, ceilings) : byDriver;
}

function decideDriver({ driver, ceilings }: { driver: DriverName; ceilings: readonly Ceiling[] }): Decision {
  for (const { of, name, remedy, drivers } of ceilings) {
    if (drivers === undefined || drivers.includes(driver)) continue;
    return {
      allowed: false,
      rule: "drivers",
      why: `${name} does not allow driver ${driver}`,
      ceiling: of,
      suggestion: `It allows ${drivers.join(", ") || "none"}. ${remedy}`,
      details: { driver, allowed: drivers },
    };
  }
  return allowed;
}

function decideLimits(
  asked: Partial<Record<BoundedLimit, number | undefined>>,
  ceilings: readonly Ceiling[],
): Decision {
  for (const limit of boundedLimits) {
    const amount = asked[limit];
    if (amount === undefined) continue;
    for (const { of, name, remedy, limits } of ceilings) {
      const most = limits[limit];
      if (most === undefined || amount <= most) continue;
      return {
        allowed: false,
        rule: `limits.${limit}`,
        why: `${limit} ${amount} is over ${most}, the ceiling of ${name}`,
        ceiling: of,
        suggestion: `Ask for ${most} at most. ${remedy}`,
        details: { limit, asked: amount, allowed: most },
      };
    }
  }
  return allowed;
}

function decideEgress(request: Extract<GuardRequest, { operation: "egress" }>): Decision {
  const { profile, egress, ceilings } = request;
  if (egress.allow.length === 0) return allowed;
  const byOperation = decideOperation(profile, "network_client", "nothing outside can be reached");
  if (!byOperation.allowed) return byOperation;
  for (const { of, name, remedy, egress: ceiling } of ceilings) {
    const rule = ceiling === undefined ? undefined : ruleBeyond(egress, ceiling);
    if (rule === undefined || ceiling === undefined) continue;
    const except = ceiling.deny.length === 0 ? "" : ` except ${ceiling.deny.join(", ")}`;
    const most = `The ceiling is ${ceiling.allow.join(", ") || "nothing"}${except}`;
    return {
      allowed: false,
      rule: "egress",
      why: `the egress rule ${rule} is beyond the ceiling of ${name}`,
      ceiling: of,
      suggestion: `${most}; special addresses have to be named. ${remedy}`,
      details: { egressRule: rule, allowed: ceiling },
    };
  }
  return allowed;
}

function decideCodeLoad({ profile, module, severity }: Extract<GuardRequest, { operation: "code_load" }>): Decision {
  if (severity === undefined || !refusedSeverities[profile.isolation].includes(severity)) return allowed;
  return refusedByProfile(profile, "scan", `${module} has a finding of severity ${severity}`, { module, severity });
}

function decideImport({ profile, module, needs }: Extract<GuardRequest, { operation: "import" }>): Decision {
  if (profile.restrictedModules.includes(module)) {
    return refusedByProfile(profile, "restrictedModules", `${module} is a restricted module`, { module });
  }
  return needs === undefined ? allowed : decideOperation(profile, needs, `${module} cannot be imported`);
}

function decideOperation(profile: SecurityProfile, operation: Operation, consequence: string): Decision {
  if (allowsOperation(profile, operation)) return allowed;
  return refusedByProfile(profile, `allowedOperations.${operation}`, consequence, { operation });
}

function refusedByProfile(
  { name }: SecurityProfile,
  rule: string,
  consequence: string,
  details: Record<string, unknown>,
): Refusal {
  return {
    allowed: false,
    rule,
    why: `${consequence} under the profile ${name}`,
    ceiling: "profile",
    suggestion: "`atoll profile show` prints what a profile allows; a weaker or a custom one may allow it.",
    details: { profile: name, ...details },
  };
}
