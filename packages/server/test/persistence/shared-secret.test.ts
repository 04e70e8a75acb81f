import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FileObjectStore, type ObjectStore } from "@atoll/storage";
import { afterEach, beforeEach, expect, test } from "vitest";
import { SharedSecret } from "../../src/persistence/shared-secret.ts";

const minute = 60_000;
const path = "/leases/abc/notify";
let dir: string;
let store: ObjectStore;
let nowMs: number;
beforeEach(async () => {
  nowMs = 1_800_000_000_000;
  dir = await mkdtemp(join(tmpdir(), "atoll-secret-"));
  store = await FileObjectStore.open(join(dir, "store"));
});
afterEach(async () => {
  await store.close();
  await rm(dir, { recursive: true, force: true });
});

function server(of: ObjectStore = store): SharedSecret {
  return new SharedSecret(of, { nowMs: () => nowMs });
}

test("servers that start at once on a new store accept each other, and no server of another store", async () => {
  const servers = Array.from({ length: 8 }, () => server());
  const proofs = await Promise.all(servers.map((one) => one.prove("POST", path)));
  for (const one of servers) {
    expect(await Promise.all(proofs.map((proof) => one.isProven(proof, "POST", path)))).not.toContain(false);
  }
  const other = await FileObjectStore.open(join(dir, "other"));
  expect(await server().isProven(await server(other).prove("POST", path), "POST", path)).toBe(false);
  await other.close();
});

test("a proof is valid for its request, for a limited time, and does not contain the secret", async () => {
  const [a, b] = [server(), server()];
  const proof = await a.prove("POST", path);
  const { secret } = JSON.parse((await store.get("server-secret.json"))?.data.toString() ?? "") as { secret: string };
  expect(proof).not.toContain(secret);
  expect(await b.isProven(proof, "POST", "/leases/abd/notify")).toBe(false);
  expect(await b.isProven(proof, "GET", path)).toBe(false);
  for (const wrong of [
    undefined,
    "",
    proof.slice(0, -1),
    `${proof}x`,
    `1${proof}`,
    proof.replace(/\..*/, "."),
    secret,
  ]) {
    expect(await b.isProven(wrong, "POST", path)).toBe(false);
  }
  nowMs += 5 * minute;
  expect(await b.isProven(proof, "POST", path)).toBe(true);
  nowMs += 1;
  expect(await b.isProven(proof, "POST", path)).toBe(false);
});

test("a removed secret is replaced, and its proofs are no longer accepted", async () => {
  const [a, b] = [server(), server()];
  expect(await b.isProven(await a.prove("POST", path), "POST", path)).toBe(true);
  await store.remove("server-secret.json");
  // A server that has not read the store since is accepted by servers that have not either, and by no others.
  const before = await a.prove("POST", path);
  const c = server();
  expect(await c.isProven(before, "POST", path)).toBe(false);
  nowMs += 10_000;
  expect(await b.isProven(await c.prove("POST", path), "POST", path)).toBe(true);
  expect(await b.isProven(before, "POST", path)).toBe(false);
  a.forget();
  expect(await c.isProven(await a.prove("POST", path), "POST", path)).toBe(true);
});

test("wrong proofs make the server read the store sometimes, and not each time", async () => {
  const a = server();
  let reads = 0;
  const get = store.get.bind(store);
  store.get = (...call) => {
    reads += 1;
    return get(...call);
  };
  const wrong = `${nowMs}.${"A".repeat(43)}`;
  for (let count = 0; count < 100; count += 1) expect(await a.isProven(wrong, "POST", path)).toBe(false);
  expect(reads).toBe(1);
  nowMs += 10_000;
  for (let count = 0; count < 100; count += 1) expect(await a.isProven(wrong, "POST", path)).toBe(false);
  expect(reads).toBe(2);
});
