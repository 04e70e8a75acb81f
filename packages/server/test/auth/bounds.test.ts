import { ProfileBook, type MachineDrivers } from "@atoll/guard";
import { CustomProfile, SandboxLimits, type AccessPolicy, type AskedLimits } from "@atoll/protocol";
import { expect, test } from "vitest";
import { Bounds } from "../../src/auth/bounds.ts";
import { pooledShapes, serverPolicy } from "../../src/auth/server-policy.ts";
import { Config } from "../../src/config/config.ts";

const open: AccessPolicy = { limits: {} };
const profiles = new ProfileBook({
  build: CustomProfile.parse({
    isolation: "high",
    limits: { memoryBytes: 2 * 1024 ** 3, cpus: 4, processes: 300 },
    allowedOperations: ["network_client"],
    egress: { allow: ["registry.test:443"] },
  }),
});
const able: MachineDrivers = { gvisor: [], local: [] };

test("a driver has to be allowed by the key and by the server", () => {
  const bounds = (key: AccessPolicy, server: AccessPolicy) => new Bounds(profiles, server, { policy: key });
  const both = { drivers: ["gvisor", "local"], limits: {} } satisfies AccessPolicy;
  const isolating = { drivers: ["gvisor"], limits: {} } satisfies AccessPolicy;
  bounds(both, both).assertDriver("local", "create");
  bounds(open, both).assertDriver("local", "create");
  for (const [key, server, ceiling] of [
    [isolating, both, "key"],
    [open, isolating, "server"],
    [both, isolating, "server"],
  ] as const) {
    expect(() => bounds(key, server).assertDriver("local", "create")).toThrow(
      expect.objectContaining({
        code: "permission_denied",
        details: { rule: "drivers", driver: "local", ceiling, allowed: ["gvisor"] },
      }),
    );
  }
});

test("a missing limit is the default or the lowest ceiling, and a requested one is never changed", () => {
  const server = { limits: { cpus: 1, processes: 400 } };
  const bounds = new Bounds(profiles, server, { policy: { limits: { processes: 300 } } });
  const profile = bounds.profileOf(undefined);
  const limitsFor = (limits: AskedLimits) => bounds.terms({ profile, limits }, "create").limits;
  expect(limitsFor({})).toEqual({ ...SandboxLimits.parse({}), cpus: 1, processes: 300 });
  expect(limitsFor({ processes: 300, fileBytes: 4096 })).toMatchObject({ processes: 300, fileBytes: 4096 });
  expect(() => limitsFor({ processes: 301 })).toThrow(
    expect.objectContaining({
      code: "permission_denied",
      details: { rule: "limits.processes", limit: "processes", asked: 301, allowed: 300, ceiling: "key" },
    }),
  );
  expect(() => limitsFor({ cpus: 2 })).toThrow(
    expect.objectContaining({ details: expect.objectContaining({ rule: "limits.cpus", ceiling: "server" }) }),
  );
});

test("a profile gives its limits and egress, lowered to the ceilings, and bounds what a request asks for", () => {
  const server = { egress: { allow: ["*"], deny: [] }, limits: { cpus: 2 } };
  const bounds = new Bounds(profiles, server, { policy: { limits: {} } });
  const profile = bounds.profileOf("build");
  expect(bounds.terms({ profile, limits: {} }, "create")).toMatchObject({
    driver: "gvisor",
    limits: { memoryBytes: 2 * 1024 ** 3, cpus: 2, processes: 300, diskBytes: 4 * 1024 ** 3 },
    egress: { allow: ["registry.test:443"] },
  });
  expect(() => bounds.terms({ profile, limits: { processes: 301 } }, "create")).toThrow(
    expect.objectContaining({ details: expect.objectContaining({ rule: "limits.processes", ceiling: "profile" }) }),
  );
  const wide = { allow: ["registry.test:80"], deny: [] };
  expect(() => bounds.terms({ profile, limits: {}, egress: wide }, "create")).toThrow(
    expect.objectContaining({ details: expect.objectContaining({ rule: "egress", ceiling: "profile" }) }),
  );
  expect(() => bounds.terms({ profile, driver: "local", limits: {} }, "create")).toThrow("the profile build does not");
  const closed = new Bounds(profiles, server, { policy: { egress: { allow: [], deny: [] }, limits: {} } });
  expect(closed.terms({ profile, limits: {} }, "create").egress).toEqual({ allow: [], deny: [] });
});

test("a key decides which profile is the default, and which is the weakest", () => {
  const bounds = (key: Partial<AccessPolicy>, server: Partial<AccessPolicy> = {}) =>
    new Bounds(profiles, { ...open, ...server }, { policy: { ...open, ...key } });
  expect(bounds({}).profileOf(undefined).name).toBe("standard");
  expect(bounds({}, { profile: "low" }).profileOf(undefined).name).toBe("low");
  expect(bounds({ weakestProfile: "medium" }, { profile: "low" }).profileOf(undefined).name).toBe("medium");
  expect(bounds({ profile: "high", weakestProfile: "medium" }).profileOf(undefined).name).toBe("high");
  const terms = (name: string, of: Bounds) => of.terms({ profile: of.profileOf(name), limits: {} }, "create");
  for (const name of ["medium", "high"]) {
    expect(terms(name, bounds({ weakestProfile: "medium" })).profile.name).toBe(name);
  }
  for (const [name, ceiling] of [
    ["low", bounds({ weakestProfile: "medium" })],
    ["standard", bounds({ weakestProfile: "medium" })],
    ["low", bounds({ weakestProfile: "low" }, { weakestProfile: "high" })],
  ] as const) {
    expect(() => terms(name, ceiling)).toThrow(
      expect.objectContaining({
        code: "permission_denied",
        details: expect.objectContaining({ rule: "weakestProfile", profile: name }),
      }),
    );
  }
  expect(() => bounds({}).profileOf("lenient")).toThrow(expect.objectContaining({ code: "invalid_argument" }));
});

test("a profile that the machine cannot provide is refused with what is missing", () => {
  const machine: MachineDrivers = { gvisor: [{ what: "runsc (not found)", fix: "Install runsc." }], local: [] };
  const bounds = (drivers: AccessPolicy["drivers"]) => new Bounds(profiles, { drivers, limits: {} });
  const both = bounds(["gvisor", "local"]);
  expect(() => both.terms({ profile: both.profileOf("high"), limits: {} }, "create", machine)).toThrow(
    expect.objectContaining({
      code: "unsupported",
      suggestion: "Install runsc.",
      details: expect.objectContaining({ profile: "high", missing: machine.gvisor }),
    }),
  );
  expect(both.resolve(both.profileOf("high"), machine)).toMatchObject({ missing: machine.gvisor });
  // The weakest level may be run without gVisor, where the operator allows the other driver.
  expect(both.terms({ profile: both.profileOf("low"), limits: {} }, "create", machine).driver).toBe("local");
  expect(both.resolve(both.profileOf("low"), machine)).toMatchObject({ driver: "local", missing: [] });
  const isolating = bounds(["gvisor"]);
  const { missing } = isolating.resolve(isolating.profileOf("low"), machine);
  expect(missing.map(({ what }) => what)).toEqual([
    "runsc (not found)",
    "permission for driver local: this server does not allow driver local",
  ]);
  expect(isolating.resolve(isolating.profileOf("low"), able)).toMatchObject({ driver: "gvisor", missing: [] });
});

test("a server without a policy allows gvisor, the internet and what the machine has", async () => {
  const policy = await serverPolicy({ limits: { memoryBytes: 64 * 1024 ** 2 } }, "/");
  expect(policy).toMatchObject({ drivers: ["gvisor"], egress: { allow: ["*"], deny: [] } });
  expect(policy.limits).toMatchObject({ memoryBytes: 64 * 1024 ** 2 });
  const { cpus = 0, diskBytes = 0, tmpBytes = 0, processes = 0 } = policy.limits;
  expect(Math.min(cpus, diskBytes, tmpBytes, processes)).toBeGreaterThan(0);
  await expect(serverPolicy({ egress: { allow: ["10.0.0.1/8"], deny: [] }, limits: {} }, "/")).rejects.toMatchObject({
    code: "invalid_argument",
  });
});

test("sandboxes that are kept ready are within the server's policy as well", async () => {
  const policy = await serverPolicy({ limits: { cpus: 0.5 } }, "/");
  const pool = (entry: object) => Config.parse({ pool: [{ count: 1, ...entry }] }).pool;
  expect(pooledShapes(pool({}), policy, profiles)).toMatchObject([{ count: 1, shape: { limits: { cpus: 0.5 } } }]);
  const high = pooledShapes(pool({ profile: "high" }), policy, profiles);
  expect(high).toMatchObject([{ shape: { limits: { cpus: 0.5, memoryBytes: 64 * 1024 ** 2, processes: 50 } } }]);
  expect(() => pooledShapes(pool({ driver: "local" }), policy, profiles)).toThrow(
    "this server does not allow driver local",
  );
  expect(() => pooledShapes(pool({ limits: { cpus: 1 } }), policy, profiles)).toThrow("cpus 1 is over 0.5");
});
