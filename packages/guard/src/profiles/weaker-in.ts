import { allowsOperation, Operation, standardProfile, type SecurityProfile } from "@atoll/protocol";
import { ruleBeyond } from "../egress/compile-policy.ts";

const isolationRank = { high: 0, medium: 1, low: 2 };
const auditRank = { full: 0, basic: 1, none: 2 };
const limits = ["memoryBytes", "cpus", "processes", "diskBytes", "tmpBytes", "fileBytes", "runTimeMs"] as const;

/**
 * Returns what the profile allows and the other does not, as text that follows "it has", or `undefined` if it is at
 * least as strict in everything.
 */
export function weakerIn(profile: SecurityProfile, than: SecurityProfile): string | undefined {
  if (profile === than || than.name === standardProfile) return undefined;
  if (profile.name === standardProfile) return "no limits of its own";
  if (isolationRank[profile.isolation] > isolationRank[than.isolation]) return `isolation ${profile.isolation}`;
  for (const limit of limits) {
    const most = than.limits[limit];
    const own = profile.limits[limit];
    if (most !== undefined && (own === undefined || own > most)) return `${limit} ${own ?? "without a limit"}`;
  }
  const operation = Operation.options.find((one) => allowsOperation(profile, one) && !allowsOperation(than, one));
  if (operation !== undefined) return `the operation ${operation}`;
  const module = than.restrictedModules.find((one) => !profile.restrictedModules.includes(one));
  if (module !== undefined) return `the module ${module}`;
  const rule =
    than.egress === undefined ? undefined : ruleBeyond(profile.egress ?? { allow: ["*"], deny: [] }, than.egress);
  if (rule !== undefined) return `the egress rule ${rule}`;
  return auditRank[profile.audit] > auditRank[than.audit] ? `audit ${profile.audit}` : undefined;
}
