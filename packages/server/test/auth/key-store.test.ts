import { mkdtemp, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CreateKey } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { KeyStore } from "../../src/auth/key-store.ts";

let dir: string;
let path: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-keys-"));
  path = join(dir, "keys.json");
});
afterEach(() => rm(dir, { recursive: true }));

test("the first start creates an admin key and shows it once", async () => {
  const first = await KeyStore.open(path);
  expect(first.firstSecret).toMatch(/^atk_[a-z0-9]{12}_[A-Za-z0-9_-]{43}$/);
  expect(first.verify(first.firstSecret ?? "")).toMatchObject({ name: "admin", verbs: ["admin"], ownOnly: false });

  const second = await KeyStore.open(path);
  expect(second.firstSecret).toBeUndefined();
  expect(second.verify(first.firstSecret ?? "")).toMatchObject({ name: "admin" });
});

test("the file has only hashes, and only its owner can read it", async () => {
  const { firstSecret = "" } = await KeyStore.open(path);
  const text = await readFile(path, "utf8");
  expect(text).not.toContain(firstSecret.split("_").at(-1));
  expect((await stat(path)).mode & 0o777).toBe(0o600);
});

test("a secret that differs in one character is not valid", async () => {
  const store = await KeyStore.open(path);
  const secret = store.firstSecret ?? "";
  const last = secret.at(-1) === "A" ? "B" : "A";
  expect(store.verify(secret.slice(0, -1) + last)).toBeUndefined();
  expect(store.verify(secret.slice(0, -1))).toBeUndefined();
  expect(store.verify(`${secret} `)).toBeUndefined();
  expect(store.verify("")).toBeUndefined();
});

test("a key and its scope are there after a restart", async () => {
  const store = await KeyStore.open(path);
  const request = CreateKey.parse({
    name: "ci",
    verbs: ["read"],
    templates: ["host"],
    policy: { egress: { allow: ["example.com"] }, limits: { sandboxes: 3 } },
    requestsPerMinute: 9,
  });
  const { key, secret } = await store.create(request);
  expect(key).not.toHaveProperty("hash");
  expect(key.policy).toEqual({
    drivers: ["gvisor"],
    egress: { allow: ["example.com"], deny: [] },
    limits: { sandboxes: 3 },
  });
  const again = await KeyStore.open(path);
  expect(again.verify(secret)).toMatchObject({ ...key, lastUsedAtMs: expect.any(Number) });
});

test("keys of an older server without a policy get the safe one, and admin keys the offered one", async () => {
  const common = { ownOnly: true, maxSandboxes: 7, createdAtMs: 1, hash: "0".repeat(64) };
  const old = (id: string, verbs: string[]) => ({ ...common, id: id.repeat(12), name: id, verbs });
  await writeFile(path, JSON.stringify({ version: 1, keys: [old("a", ["admin"]), old("b", ["sandboxes"])] }));
  const limits = { sandboxes: 7 };
  const policies = [{ limits }, { drivers: ["gvisor"], egress: { allow: ["*"], deny: [] }, limits }];
  const store = await KeyStore.open(path);
  expect(store.list().map(({ policy }) => policy)).toEqual(policies);
  await store.close();
  expect((await KeyStore.open(path)).list().map(({ policy }) => policy)).toEqual(policies);
});

test("a revoked key is refused at once and after a restart", async () => {
  const store = await KeyStore.open(path);
  const { key, secret } = await store.create(CreateKey.parse({ name: "ci" }));
  await store.revoke(key.id);
  expect(store.verify(secret)).toBeUndefined();
  expect(store.list().map(({ name }) => name)).toEqual(["admin"]);
  expect((await KeyStore.open(path)).verify(secret)).toBeUndefined();
});

test("the last admin key cannot be revoked", async () => {
  const store = await KeyStore.open(path);
  const [admin] = store.list();
  await expect(store.revoke(admin?.id ?? "")).rejects.toMatchObject({ code: "invalid_state" });
  await store.create(CreateKey.parse({ name: "second", verbs: ["admin"] }));
  await store.revoke(admin?.id ?? "");
  expect(store.list().map(({ name }) => name)).toEqual(["second"]);
});

test("many keys that are created at once are all stored", async () => {
  const store = await KeyStore.open(path);
  await Promise.all(Array.from({ length: 20 }, (_, index) => store.create(CreateKey.parse({ name: `key ${index}` }))));
  expect((await KeyStore.open(path)).list()).toHaveLength(21);
});

describe("a key that cannot be stored", () => {
  const breakDisk = (): Promise<void> => rename(dir, `${dir}-gone`);
  const mendDisk = (): Promise<void> => rename(`${dir}-gone`, dir);

  test("is refused at once after a revocation, and a second revocation stores that", async () => {
    const store = await KeyStore.open(path);
    const { key, secret } = await store.create(CreateKey.parse({ name: "ci" }));
    const revoked = store.untilRevoked(key.id);
    await breakDisk();
    await expect(store.revoke(key.id)).rejects.toThrow("ENOENT");
    expect(store.verify(secret)).toBeUndefined();
    expect(revoked.aborted).toBe(true);
    expect(store.untilRevoked(key.id).aborted).toBe(true);
    // The list shows that the revocation is not stored.
    expect(store.list().map(({ name }) => name)).toEqual(["admin", "ci"]);
    await mendDisk();
    expect((await KeyStore.open(path)).verify(secret)).toMatchObject({ name: "ci" });
    await store.revoke(key.id);
    expect(store.list().map(({ name }) => name)).toEqual(["admin"]);
    expect((await KeyStore.open(path)).verify(secret)).toBeUndefined();
    await expect(store.revoke(key.id)).rejects.toMatchObject({ code: "not_found" });
  });

  test("does not count as another admin key while its revocation is not stored", async () => {
    const store = await KeyStore.open(path);
    const [admin] = store.list();
    const { key } = await store.create(CreateKey.parse({ name: "second", verbs: ["admin"] }));
    await breakDisk();
    await expect(store.revoke(key.id)).rejects.toThrow("ENOENT");
    await mendDisk();
    await expect(store.revoke(admin?.id ?? "")).rejects.toMatchObject({ code: "invalid_state" });
  });

  test("does not exist, also after the next key was stored", async () => {
    const store = await KeyStore.open(path);
    await breakDisk();
    const [lost, other] = [
      store.create(CreateKey.parse({ name: "lost" })),
      store.create(CreateKey.parse({ name: "too" })),
    ];
    await expect(lost).rejects.toThrow("ENOENT");
    await expect(other).rejects.toThrow("ENOENT");
    expect(store.list().map(({ name }) => name)).toEqual(["admin"]);
    await mendDisk();
    await store.create(CreateKey.parse({ name: "next" }));
    expect((await KeyStore.open(path)).list().map(({ name }) => name)).toEqual(["admin", "next"]);
  });
});
