import type { CommandResult, KeyCreated } from "@atoll/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

let server: TestServer;
let admin: ApiClient;
beforeAll(async () => {
  server = await startTestServer();
  admin = new ApiClient(server.url, server.key);
});
afterAll(() => server.dispose());

/** Sandboxes without gVisor start faster, and policies work the same for them. */
const policy = { drivers: ["local"] };

async function makeKey(request: Record<string, unknown>): Promise<ApiClient> {
  const { status, body } = await admin.ask<KeyCreated>("POST", "/keys", {
    name: "test",
    ownOnly: false,
    policy,
    ...request,
  });
  expect(status).toBe(201);
  return admin.as(body.secret);
}

test("drivers: a key without a list of drivers cannot use local, on any route", async () => {
  const api = await makeKey({ policy: undefined });
  const refused = {
    code: "permission_denied",
    message: expect.stringContaining("this key does not allow driver local"),
    suggestion: expect.stringContaining("It allows gvisor."),
    details: { driver: "local", ceiling: "key", allowed: ["gvisor"] },
  };
  const { sandbox } = await admin.create();
  const ways = [
    ["/sandboxes", { driver: "local" }],
    ["/run", { driver: "local", argv: ["true"] }],
    [`/sandboxes/${sandbox.id}/fork`, {}],
    [`/sandboxes/${sandbox.id}/resume`, { memory: false }],
  ] as const;
  for (const [path, body] of ways) expect((await api.ask("POST", path, body)).body.error).toMatchObject(refused);
  await admin.ask("DELETE", `/sandboxes/${sandbox.id}`);
});

test("egress: a policy above the ceiling is refused at create, change and fork, with the rule", async () => {
  const api = await makeKey({});
  const inner = { allow: ["example.com", "10.0.0.0/8"] };
  const refused = {
    code: "permission_denied",
    message: expect.stringContaining("the egress rule 10.0.0.0/8 is beyond the ceiling of this key"),
    details: { rule: "egress", egressRule: "10.0.0.0/8", ceiling: "key", allowed: { allow: ["*"], deny: [] } },
  };
  expect((await api.ask("POST", "/sandboxes", { driver: "local", egress: inner })).body.error).toMatchObject(refused);
  const { sandbox } = await api.create({ egress: { allow: ["example.com"] } });
  const path = `/sandboxes/${sandbox.id}/egress`;
  expect((await api.ask("PUT", path, inner)).body.error).toMatchObject(refused);
  expect((await api.ask("GET", path)).body).toEqual({ allow: ["example.com"], deny: [] });
  const closed = await makeKey({ policy: { ...policy, egress: { allow: [] } } });
  expect((await closed.ask("POST", `/sandboxes/${sandbox.id}/fork`, {})).body.error).toMatchObject({
    code: "permission_denied",
    details: { rule: "egress", egressRule: "example.com", ceiling: "key" },
  });
  // The server's own ceiling applies to all keys.
  expect((await admin.ask("PUT", path, { allow: ["127.0.0.1:80"] })).body.error).toMatchObject({
    code: "permission_denied",
    details: { rule: "egress", egressRule: "127.0.0.1:80", ceiling: "server" },
  });
  const malformed = await admin.ask("POST", "/keys", { name: "x", policy: { egress: { allow: ["10.0.0.1/8"] } } });
  expect(malformed.body.error?.code).toBe("invalid_argument");
  await admin.ask("DELETE", `/sandboxes/${sandbox.id}`);
});

test("limits: values above a ceiling of the key or the machine are refused, and defaults fit", async () => {
  const limits = { memoryBytes: 128 * 1024 ** 2, cpus: 0.5, processes: 64 };
  const api = await makeKey({ policy: { ...policy, limits } });
  const { sandbox } = await api.create({ limits: { cpus: 0.25 } });
  expect(sandbox.limits).toMatchObject({ ...limits, cpus: 0.25, diskBytes: 4 * 1024 ** 3 });
  const over = await api.ask("POST", "/sandboxes", { driver: "local", limits: { processes: 65 } });
  expect(over).toMatchObject({
    status: 403,
    body: {
      error: {
        code: "permission_denied",
        message: "Cannot create sandbox: processes 65 is over 64, the ceiling of this key",
        details: { limit: "processes", asked: 65, allowed: 64, ceiling: "key" },
      },
    },
  });
  const huge = { memoryBytes: 1024 ** 4, cpus: 1024, diskBytes: 64 * 1024 ** 4, tmpBytes: 1024 ** 4 };
  for (const [limit, asked] of Object.entries(huge)) {
    const answer = await admin.ask("POST", "/sandboxes", { driver: "local", limits: { [limit]: asked } });
    expect(answer.body.error).toMatchObject({
      code: "permission_denied",
      details: { limit, asked, ceiling: "server" },
    });
  }
  const once = await api.ask<CommandResult>("POST", "/run", { driver: "local", argv: ["bash", "-c", "ulimit -u"] });
  expect(once.body.stdout).toBe("64\n");
  const large = await admin.create();
  expect((await api.ask("POST", `/sandboxes/${large.sandbox.id}/fork`, {})).body.error).toMatchObject({
    code: "permission_denied",
    details: { limit: "memoryBytes", ceiling: "key" },
  });
  await Promise.all([sandbox, large.sandbox].map(({ id }) => admin.ask("DELETE", `/sandboxes/${id}`)));
});
