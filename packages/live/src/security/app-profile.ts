import { assertAllowed, profileCeiling, type ProfileBook } from "@atoll/guard";
import { SandboxError, SecurityProfile, standardProfile } from "@atoll/protocol";
import { missingCgroups } from "../isolation/app-cgroup.ts";
import type { AppHost, IsolationLevel } from "../isolation/app-host.ts";
import type { AppConfig, AppConfigInput } from "../manager/app-options.ts";

/** The levels that isolate an app as strongly as each profile asks for. At `process` there is no wall. */
const levelsOf: Readonly<Record<SecurityProfile["isolation"], readonly IsolationLevel[]>> = {
  high: ["gvisor", "bubblewrap"],
  medium: ["gvisor", "bubblewrap"],
  low: ["gvisor", "bubblewrap", "process"],
};

export function resolveProfile(given: NonNullable<AppConfigInput["profile"]>, book: ProfileBook): SecurityProfile {
  return typeof given === "string" ? book.get(given) : SecurityProfile.parse({ name: "custom", ...given });
}

/** The configuration of an app with the limits of its profile where it has none of its own. */
export function withLimitsOf(profile: SecurityProfile, input: AppConfigInput): AppConfigInput {
  if (profile.name === standardProfile) return input;
  const { memoryBytes, cpus, processes, fileBytes } = profile.limits;
  const limits = { memoryBytes, cpus, processes, ...(fileBytes === undefined ? {} : { fileBytes }), ...input.limits };
  return { ...input, limits };
}

/** Throws `permission_denied` if an app asks for more than its profile allows. */
export function assertWithin(profile: SecurityProfile, id: string, config: AppConfig): void {
  const { memoryBytes, cpus, processes, fileBytes } = config.limits;
  const limits = { memoryBytes, cpus, processes, fileBytes };
  const ceilings = profileCeiling(profile);
  // The isolation is compared below, since apps have levels of their own instead of drivers.
  assertAllowed({ operation: "create", profile, driver: "gvisor", limits, ceilings }, `create app ${id}`);
  for (const port of config.ports) assertAllowed({ operation: "port", profile, port }, `create app ${id}`);
  const { isolation } = config;
  if (isolation === "strongest" || levelsOf[profile.isolation].includes(isolation)) return;
  throw new SandboxError(
    "permission_denied",
    `Cannot create app ${id}: the profile ${profile.name} does not allow isolation ${isolation}`,
    {
      suggestion: `It allows ${levelsOf[profile.isolation].join(" and ")}; "strongest" takes the first that is there.`,
      details: { profile: profile.name, isolation, allowed: levelsOf[profile.isolation] },
    },
  );
}

/** What a host lacks to provide a profile; empty if it can. Nothing of a profile is left out silently. */
export async function missingFor(profile: SecurityProfile, host: AppHost, isAskedFor: boolean): Promise<string[]> {
  if (profile.name === standardProfile) return host.missing(isAskedFor);
  if (!levelsOf[profile.isolation].includes(host.level)) return [`isolation ${profile.isolation} needs more than this`];
  const missing = await host.missing(isAskedFor);
  if (host.level !== "gvisor") missing.push(...(await missingCgroups()));
  const { egress } = profile;
  const isRestricted = egress !== undefined && (egress.allow.join() !== "*" || egress.deny.length > 0);
  if (host.level === "process" && isRestricted) {
    missing.push("a network of its own, which the egress rules of the profile need (install bubblewrap)");
  }
  return missing;
}
