import {
  driversOf,
  SandboxLimits,
  standardProfile,
  type AskedLimits,
  type DriverName,
  type EgressPolicy,
  type ResolvedProfile,
  type SecurityProfile,
} from "@atoll/protocol";
import { boundedLimits, profileCeiling, type Ceiling } from "../controller/ceiling.ts";
import { decide } from "../controller/decide.ts";

/** What each driver lacks on this machine; a driver that lacks nothing can run sandboxes. */
export type MachineDrivers = Readonly<Record<DriverName, ResolvedProfile["missing"]>>;

/** Returns the ceilings of a sandbox: of its profile, and of the key and the server. */
export function ceilingsWith(profile: SecurityProfile, ceilings: readonly Ceiling[]): Ceiling[] {
  return [...profileCeiling(profile), ...ceilings];
}

/** Chooses the first driver of the profile that all ceilings allow and that the machine has. */
export function driverFor(
  profile: SecurityProfile,
  ceilings: readonly Ceiling[],
  machine?: MachineDrivers,
): DriverName | undefined {
  // Without a profile, a sandbox is isolated by gVisor unless its request says otherwise.
  const drivers = profile.name === standardProfile ? driversOf.high : driversOf[profile.isolation];
  return drivers.find(
    (driver) => decide({ operation: "driver", driver, ceilings }).allowed && (machine?.[driver].length ?? 0) === 0,
  );
}

/** What would have to be there for the profile to be provided, in the order in which it is looked for. */
export function missingFor(
  profile: SecurityProfile,
  ceilings: readonly Ceiling[],
  machine: MachineDrivers,
): ResolvedProfile["missing"] {
  if (driverFor(profile, ceilings, machine) !== undefined) return [];
  return driversOf[profile.isolation].flatMap((driver) => {
    const decision = decide({ operation: "driver", driver, ceilings });
    if (decision.allowed) return machine[driver];
    return [{ what: `permission for driver ${driver}: ${decision.why}`, fix: decision.suggestion }];
  });
}

/** Returns all limits. What was not asked for is as in the profile, lowered to the ceilings. */
export function limitsFor(profile: SecurityProfile, asked: AskedLimits, ceilings: readonly Ceiling[]): SandboxLimits {
  const { runTimeMs: _, ...own } = profile.limits;
  const limits = SandboxLimits.parse({ ...own, ...asked });
  for (const limit of boundedLimits) {
    if (asked[limit] !== undefined) continue;
    const most = ceilings.map(({ limits: allowed }) => allowed[limit]).filter((amount) => amount !== undefined);
    const lowest = Math.min(...most);
    if (lowest < (limits[limit] ?? Infinity)) limits[limit] = lowest;
  }
  return limits;
}

/** What a sandbox may reach by default: what the profile allows, or less where a ceiling is lower. */
export function egressFor(profile: SecurityProfile, ceilings: readonly Ceiling[]): EgressPolicy {
  const nothing: EgressPolicy = { allow: [], deny: [] };
  if (profile.egress === undefined) return nothing;
  const all = ceilingsWith(profile, ceilings);
  const candidates = [profile.egress, ...all.map(({ egress }) => egress).filter((egress) => egress !== undefined)];
  return (
    candidates.find((egress) => decide({ operation: "egress", profile, egress, ceilings: all }).allowed) ?? nothing
  );
}

/** How the limit for memory is meant, for people. */
export function memoryCounts(driver: DriverName | undefined): string {
  const counted = "the kernel counts all memory of the sandbox's cgroup: its processes, its /tmp and its page cache";
  if (driver !== "gvisor") return counted;
  return `${counted}, and gVisor itself, which takes about ${gvisorMiB} MiB of it, and some for each process`;
}

/** The memory of the cgroup of a sandbox that does nothing, measured with the template `host`. */
const gvisorMiB = 16;
