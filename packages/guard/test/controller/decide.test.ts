import {
  allowsOperation,
  builtInProfiles,
  CustomProfile,
  Operation,
  type SecurityProfile,
  type EgressPolicy,
} from "@atoll/protocol";
import { expect, test } from "vitest";
import { assertAllowed, ceilingsWith, decide, policyCeiling, ProfileBook, weakerIn } from "../../src/index.ts";

const book = new ProfileBook();
const high = book.get("high");
const medium = book.get("medium");
const low = book.get("low");
const standard = book.get("standard");
const egress = (...allow: string[]): EgressPolicy => ({ allow, deny: [] });
const changed = (profile: SecurityProfile, change: Partial<SecurityProfile>): SecurityProfile => ({
  ...profile,
  name: "changed",
  ...change,
});

test("the built-in profiles have the values of their documentation", () => {
  expect(
    builtInProfiles.map(({ name, isolation, limits, audit }) => [
      name,
      isolation,
      limits.memoryBytes / 1024 ** 2,
      limits.processes,
      limits.runTimeMs,
      audit,
    ]),
  ).toEqual([
    ["high", "high", 64, 50, 60_000, "full"],
    ["medium", "medium", 128, 100, 300_000, "basic"],
    ["low", "low", 256, 200, 600_000, "basic"],
    ["standard", "low", 1024, 512, undefined, "basic"],
  ]);
  const operations = (profile: SecurityProfile) => Operation.options.filter((one) => allowsOperation(profile, one));
  expect(operations(high)).toEqual(["compute"]);
  expect(operations(medium)).toEqual(["compute", "file_read", "network_client"]);
  expect(operations(low)).toEqual(Operation.options);
});

test("a profile is weaker if it allows anything that the other does not", () => {
  expect(weakerIn(high, high)).toBeUndefined();
  expect(weakerIn(high, low)).toBeUndefined();
  expect(weakerIn(low, high)).toBe("isolation low");
  expect(weakerIn(standard, low)).toBe("no limits of its own");
  expect(weakerIn(low, standard)).toBeUndefined();
  const { runTimeMs: _, ...endless } = high.limits;
  const weaker: [Partial<SecurityProfile>, string][] = [
    [{ limits: { ...high.limits, memoryBytes: high.limits.memoryBytes + 1 } }, "memoryBytes 67108865"],
    [{ limits: endless }, "runTimeMs without a limit"],
    [{ allowedOperations: ["compute", "file_write"] }, "the operation file_write"],
    [{ egress: { allow: ["example.com"], deny: [] } }, "the egress rule example.com"],
    [{ egress: undefined }, "the egress rule *"],
    [{ audit: "basic" }, "audit basic"],
  ];
  for (const [change, what] of weaker) expect(weakerIn(changed(high, change), high)).toBe(what);
  const guarded = changed(high, { restrictedModules: ["node:crypto"] });
  expect(weakerIn(high, guarded)).toBe("the module node:crypto");
  expect(weakerIn(guarded, high)).toBeUndefined();
});

test("every refusal names its rule, its ceiling and what to do", () => {
  const key = policyCeiling("key", {
    drivers: ["gvisor"],
    egress: { allow: ["*.example.com"], deny: [] },
    limits: { cpus: 0.5 },
  });
  const ceilings = ceilingsWith(medium, [key]);
  const create = { operation: "create", weakest: [], driver: "gvisor", limits: {} } as const;
  const refusals = [
    [{ ...create, profile: low, weakest: [{ profile: medium, ceiling: key }], ceilings }, "weakestProfile", "key"],
    [{ ...create, profile: medium, driver: "local", ceilings: [key] }, "drivers", "key"],
    [{ ...create, profile: medium, driver: "local", ceilings }, "drivers", "profile"],
    [{ ...create, profile: medium, limits: { cpus: 0.6 }, ceilings }, "limits.cpus", "key"],
    [{ ...create, profile: medium, limits: { fileBytes: 2 ** 40 }, ceilings }, "limits.fileBytes", "profile"],
    [
      { operation: "egress", profile: high, egress: egress("a.test"), ceilings: [] },
      "allowedOperations.network_client",
    ],
    [{ operation: "egress", profile: medium, egress: egress("a.test"), ceilings }, "egress", "key"],
    [{ operation: "egress", profile: medium, egress: egress("10.0.0.1"), ceilings }, "egress", "profile"],
    [{ operation: "port", profile: medium, port: 80 }, "allowedOperations.network_server", "profile"],
    [{ operation: "code_load", profile: high, module: "a.ts", severity: "high" }, "scan", "profile"],
    [
      { operation: "import", profile: high, module: "node:net", needs: "network_client" },
      "allowedOperations.network_client",
    ],
    [
      { operation: "import", profile: changed(low, { restrictedModules: ["node:vm"] }), module: "node:vm" },
      "restrictedModules",
      "profile",
    ],
  ] as const;
  for (const [request, rule, ceiling = "profile"] of refusals) {
    expect(decide(request)).toMatchObject({ allowed: false, rule, ceiling, suggestion: expect.stringMatching(/\.$/) });
    expect(() => assertAllowed(request, "do it")).toThrow(
      expect.objectContaining({
        code: "permission_denied",
        message: expect.stringMatching(/^Cannot do it: /),
        details: expect.objectContaining({ rule, ceiling }),
      }),
    );
  }
});

test("what lies within all ceilings is allowed", () => {
  const key = policyCeiling("key", { egress: { allow: ["*.example.com"], deny: [] }, limits: { cpus: 0.5 } });
  const ceilings = ceilingsWith(medium, [key]);
  const weakest = [{ profile: medium, ceiling: key }];
  for (const request of [
    { operation: "create", profile: medium, weakest, driver: "gvisor", limits: { cpus: 0.5 }, ceilings },
    { operation: "egress", profile: medium, egress: egress("a.example.com:443"), ceilings },
    { operation: "egress", profile: high, egress: egress(), ceilings },
    { operation: "port", profile: low, port: 80 },
    { operation: "code_load", profile: low, module: "a.ts", severity: "critical" },
    { operation: "code_load", profile: high, module: "a.ts" },
    { operation: "import", profile: medium, module: "node:http", needs: "network_client" },
    { operation: "import", profile: high, module: "node:path" },
  ] as const) {
    expect(decide(request)).toEqual({ allowed: true });
  }
});

test("an operator replaces high, and cannot take the name of the standard profile", () => {
  const own = CustomProfile.parse({
    isolation: "high",
    limits: { memoryBytes: 256 * 1024 ** 2, cpus: 1, processes: 64 },
    allowedOperations: ["compute"],
  });
  expect(new ProfileBook({ high: own }).get("high").limits.memoryBytes).toBe(256 * 1024 ** 2);
  expect(new ProfileBook({ high: own }).all()).toHaveLength(builtInProfiles.length);
  expect(() => new ProfileBook({ standard: own })).toThrow(expect.objectContaining({ code: "invalid_argument" }));
});
