import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { RateLimiter } from "@atoll/guard";
import { CreateKey, SandboxId, type KeyInfo } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { credentialsOf, Authenticator } from "../../src/auth/authenticator.ts";
import { KeyStore } from "../../src/auth/key-store.ts";
import { assertMay, assertMayUseTemplate, canSee, type Principal } from "../../src/auth/principal.ts";

const mine = SandboxId.parse("a".repeat(20));
const other = SandboxId.parse("b".repeat(20));

describe("the authenticator", () => {
  let dir: string;
  let keys: KeyStore;
  let refused: string[];
  let authenticator: Authenticator;
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), "atoll-authenticator-"));
    keys = await KeyStore.open(join(dir, "keys.json"));
    refused = [];
    authenticator = new Authenticator({
      keys,
      verifyToken: (id, token) => id === mine && token === "sbt_right",
      onRefused: ({ because }) => refused.push(because),
    });
  });
  afterEach(() => rm(dir, { recursive: true }));

  test("admits a key", () => {
    expect(authenticator.admit({ key: keys.firstSecret }, "look", undefined)).toMatchObject({ key: { name: "admin" } });
  });

  test("returns the same error for a wrong token, another sandbox's token and a missing sandbox", () => {
    const said = [
      [mine, "sbt_wrong"],
      [other, "sbt_right"],
      [SandboxId.parse("c".repeat(20)), "sbt_right"],
    ].map(([id, token]) => {
      try {
        return authenticator.admit({ sandboxToken: token }, "look", id as SandboxId);
      } catch (error) {
        return JSON.stringify(error);
      }
    });
    expect(new Set(said).size).toBe(1);
    expect(said[0]).toContain("permission_denied");
  });

  test("reports refusals, but not each one of a flood", () => {
    for (let count = 0; count < 500; count += 1) {
      expect(() => authenticator.admit({ key: "atk_wrong" }, "look", undefined)).toThrow("not valid");
    }
    expect(refused.length).toBeGreaterThan(0);
    expect(refused.length).toBeLessThanOrEqual(62);
  });

  test("limits the rate of a key", async () => {
    const { secret } = await keys.create(CreateKey.parse({ name: "slow", requestsPerMinute: 2 }));
    authenticator.admit({ key: secret }, "look", undefined);
    authenticator.admit({ key: secret }, "look", undefined);
    expect(() => authenticator.admit({ key: secret }, "look", undefined)).toThrow(
      expect.objectContaining({ code: "limit_reached", details: expect.objectContaining({ allowed: 2 }) }),
    );
  });
});

test.for<[string, Record<string, string | string[]>, { key?: string; sandboxToken?: string }]>([
  ["a bearer key", { authorization: "Bearer atk_x" }, { key: "atk_x" }],
  ["a bearer token", { authorization: "bearer sbt_x" }, { sandboxToken: "sbt_x" }],
  ["the header of keys", { "x-api-key": "atk_x" }, { key: "atk_x" }],
  ["the header of tokens", { "x-atoll-sandbox-token": "sbt_x" }, { sandboxToken: "sbt_x" }],
  ["another scheme", { authorization: "Basic atk_x" }, {}],
  ["two words", { authorization: "Bearer atk_x atk_y" }, {}],
  ["a header that occurs twice", { "x-api-key": ["atk_x", "atk_y"] }, {}],
  ["a key that is far too long", { "x-api-key": "a".repeat(10_000) }, {}],
])("credentials from %s", ([, headers, credentials]) => {
  expect(credentialsOf(headers)).toEqual({ key: undefined, sandboxToken: undefined, ...credentials });
});

describe("the rights of a principal", () => {
  const key = (scope: Partial<KeyInfo>): Principal => ({
    kind: "key",
    key: { id: "k1", name: "k", verbs: ["read"], ownOnly: true, policy: { limits: {} }, createdAtMs: 0, ...scope },
  });
  const token: Principal = { kind: "sandbox", sandboxId: mine };

  test("verbs allow what they name, and admin allows everything", () => {
    assertMay(key({}), "read", "look");
    assertMay(key({ verbs: ["admin"] }), "templates", "look");
    expect(() => assertMay(key({}), "commands", "run")).toThrow(expect.objectContaining({ code: "permission_denied" }));
  });

  test("a sandbox's token is valid for its sandbox, but not for killing it", () => {
    assertMay(token, "commands", "run", mine);
    expect(() => assertMay(token, "commands", "run", other)).toThrow("another use");
    expect(() => assertMay(token, "sandboxes", "kill", mine)).toThrow("another use");
    expect(() => assertMay(token, "read", "list")).toThrow("another use");
  });

  test("a key with templates may use only those", () => {
    assertMayUseTemplate(key({ templates: ["host"] }), "host", "create");
    assertMayUseTemplate(key({}), "anything", "create");
    expect(() => assertMayUseTemplate(key({ templates: ["host"] }), "debian", "create")).toThrow("may not use");
  });

  test("a key with ownOnly sees only its own sandboxes", () => {
    expect(canSee(key({}), { id: mine, owner: "k1" })).toBe(true);
    expect(canSee(key({}), { id: mine, owner: "k2" })).toBe(false);
    expect(canSee(key({ ownOnly: false }), { id: mine, owner: "k2" })).toBe(true);
    expect(canSee(token, { id: other, owner: "k1" })).toBe(false);
  });
});

test("a bucket fills again at its rate, and holds at most a minute's worth", () => {
  const limiter = new RateLimiter();
  expect(limiter.take("k", 60, 0)).toBe(0);
  for (let count = 0; count < 59; count += 1) limiter.take("k", 60, 0);
  expect(limiter.take("k", 60, 0)).toBe(1_000);
  expect(limiter.take("k", 60, 1_000)).toBe(0);
  expect(limiter.take("k", 60, 1_000)).toBe(1_000);
  expect(limiter.take("other", 60, 1_000)).toBe(0);
});
