import { SandboxLimits, type AccessPolicy } from "@atoll/protocol";
import { expect, test } from "vitest";
import { Bounds } from "../../src/auth/bounds.ts";
import { pooledShapes, serverPolicy } from "../../src/auth/server-policy.ts";
import { Config } from "../../src/config/config.ts";

const open: AccessPolicy = { limits: {} };

test("a driver has to be allowed by the key and by the server", () => {
  const bounds = (key: AccessPolicy, server: AccessPolicy) => new Bounds(server, { policy: key });
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
        details: { driver: "local", ceiling, allowed: ["gvisor"] },
      }),
    );
  }
});

test("a missing limit is the default or the lowest ceiling, and a requested one is never changed", () => {
  const bounds = new Bounds({ limits: { cpus: 1, processes: 400 } }, { policy: { limits: { processes: 300 } } });
  expect(bounds.limitsFor({}, "create")).toEqual({ ...SandboxLimits.parse({}), cpus: 1, processes: 300 });
  expect(bounds.limitsFor({ processes: 300, fileBytes: 4096 }, "create")).toMatchObject({
    processes: 300,
    fileBytes: 4096,
  });
  expect(() => bounds.limitsFor({ processes: 301 }, "create")).toThrow(
    expect.objectContaining({ details: { limit: "processes", asked: 301, allowed: 300, ceiling: "key" } }),
  );
  expect(() => bounds.limitsFor({ cpus: 2 }, "create")).toThrow(
    expect.objectContaining({ details: { limit: "cpus", asked: 2, allowed: 1, ceiling: "server" } }),
  );
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
  expect(pooledShapes(pool({}), policy)).toMatchObject([{ count: 1, shape: { limits: { cpus: 0.5 } } }]);
  expect(() => pooledShapes(pool({ driver: "local" }), policy)).toThrow("this server does not allow driver local");
  expect(() => pooledShapes(pool({ limits: { cpus: 1 } }), policy)).toThrow("cpus 1 is over 0.5");
});
