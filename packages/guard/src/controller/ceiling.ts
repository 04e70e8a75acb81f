import {
  driversOf,
  standardProfile,
  type AccessPolicy,
  type DriverName,
  type EgressPolicy,
  type SecurityProfile,
} from "@atoll/protocol";

export const boundedLimits = ["memoryBytes", "cpus", "processes", "diskBytes", "tmpBytes", "fileBytes"] as const;
export type BoundedLimit = (typeof boundedLimits)[number];

/** What sets an upper bound. A request has to be within all of its ceilings. */
export type CeilingOwner = "profile" | "key" | "server";

/** An upper bound of what a sandbox or a live application may be given. A field that is left out sets none. */
export interface Ceiling {
  of: CeilingOwner;
  /** What sets the bound, as errors name it. */
  name: string;
  /** How to be allowed more, as a sentence. */
  remedy: string;
  drivers?: readonly DriverName[] | undefined;
  limits: Partial<Record<BoundedLimit, number | undefined>>;
  egress?: EgressPolicy | undefined;
}

const names = {
  key: { name: "this key", remedy: "An admin key can create a key that allows it (`atoll key create --help`)." },
  server: { name: "this server", remedy: "The operator of the server can allow it with the setting `policy`." },
};

export function policyCeiling(of: "key" | "server", { drivers, limits, egress }: AccessPolicy): Ceiling {
  return { of, ...names[of], drivers, limits, egress };
}

/** The profile of a sandbox as an upper bound; the standard profile is none. */
export function profileCeiling(profile: SecurityProfile): Ceiling[] {
  if (profile.name === standardProfile) return [];
  const { name, isolation, limits, egress } = profile;
  return [
    {
      of: "profile",
      name: `the profile ${name}`,
      remedy: "`atoll profile ls` lists the profiles, and what each allows.",
      drivers: driversOf[isolation],
      limits,
      egress,
    },
  ];
}
