// @module-tag gvisor
import { rm } from "node:fs/promises";
import { serverProofHeader, type SandboxForked, type SandboxInfo } from "@atoll/protocol";
import { FileObjectStore, openStore, type ObjectStore, type StoreConfig } from "@atoll/storage";
import { afterEach, expect, onTestFinished, test } from "vitest";
import { SharedSecret } from "../../packages/server/src/persistence/shared-secret.ts";
import type { ApiClient } from "../support/api-client.ts";
import { ServerPair } from "../support/server-pair.ts";
import { sharedBucket } from "../support/shared-store.ts";
import { makeDataDir } from "../support/test-root.ts";

const persistent = { driver: "gvisor", persistent: true } as const;
const longTimeout = { timeout: 180_000 };

const servers = new ServerPair(sharedBucket);
afterEach(() => servers.store.calm());

/** Holds matching requests back until `release` is called. */
function hold(operation: string, key: RegExp): { held: Promise<void>; release: () => void } {
  let release = (): void => undefined;
  const until = new Promise<void>((resolve) => {
    release = resolve;
  });
  const held = new Promise<void>((resolve) => {
    servers.store.setFaults((request) => {
      if (request.operation !== operation || !key.test(request.key)) return undefined;
      resolve();
      return { do: "hold", until };
    });
  });
  return { held, release: () => release() };
}
const manifests = /checkpoints\/.*manifest\.json$/;
const memory = /checkpoints\/.*\/memory\//;

test("a request to a sandbox while its pause is stored wakes it", longTimeout, async () => {
  const [atA] = servers.clients;
  const { sandbox } = await atA.create(persistent);
  const at = `/sandboxes/${sandbox.id}`;
  await atA.run(sandbox.id, { shell: "echo kept >note" });
  const { held, release } = hold("PutObject", manifests);
  const pausing = atA.ask("POST", `${at}/pause`, {});
  await held;
  const running = atA.run(sandbox.id, { shell: "cat note" });
  // The request waits: the pause has the turn, and the sandbox belongs to this server until the pause is over.
  expect((await atA.ask<SandboxInfo>("GET", at)).body).toMatchObject({
    state: "paused",
    server: { url: servers.a.url },
  });
  release();
  expect((await pausing).status).toBe(200);
  expect((await running).stdout).toBe("kept\n");
  expect((await atA.ask<SandboxInfo>("GET", at)).body).toMatchObject({ state: "running" });
  await atA.ask("DELETE", at);
});

test("requests to a sandbox while its pause is stored are carried out afterwards", longTimeout, async () => {
  const [atA, atB] = servers.clients;
  const { sandbox } = await atA.create(persistent);
  const at = `/sandboxes/${sandbox.id}`;
  const whilePausing = async <T>(ask: () => Promise<T>): Promise<T> => {
    const { held, release } = hold("PutObject", manifests);
    const pausing = atA.ask("POST", `${at}/pause`, {});
    await held;
    const asked = ask();
    expect((await atA.ask<SandboxInfo>("GET", at)).body.state).toBe("paused");
    release();
    expect((await pausing).status).toBe(200);
    return asked;
  };
  const [changed, again, removed, { body: forked }] = await whilePausing(() =>
    Promise.all([
      atA.ask("PATCH", at, { labels: { job: "8" } }),
      atA.ask("POST", `${at}/pause`, {}),
      atA.ask("DELETE", `${at}/checkpoints/77`),
      atA.ask<SandboxForked>("POST", `${at}/fork`, { count: 1 }),
    ]),
  );
  expect(changed.body).toMatchObject({ state: "paused", labels: { job: "8" } });
  expect(again.body.error).toMatchObject({ code: "invalid_state" });
  expect(removed.body).toEqual({ removed: false });
  expect(forked.sandboxes).toMatchObject([{ sandbox: { state: "running" } }]);
  // None of these requests has woken the sandbox, and no server owns it again.
  await expect.poll(async () => (await atB.ask<SandboxInfo>("GET", at)).body.server).toBeUndefined();
  expect((await atB.ask("GET", at)).body).toMatchObject({ state: "paused", labels: { job: "8" } });

  expect((await atA.ask("POST", `${at}/resume`, {})).status).toBe(200);
  const rolledBack = await whilePausing(() => atA.ask("POST", `${at}/rollback`, { checkpoint: 1 }));
  expect(rolledBack.body).toMatchObject({ sandbox: { state: "running" }, checkpoint: 1 });
  const copies = forked.sandboxes.map((copy) => `/sandboxes/${copy.sandbox.id}`);
  await Promise.all([at, ...copies].map((path) => atA.ask("DELETE", path)));
});

test("a kill does not wait until a checkpoint is stored, and ends the pause with an error", longTimeout, async () => {
  const [atA, atB] = servers.clients;
  const { sandbox } = await atA.create(persistent);
  const at = `/sandboxes/${sandbox.id}`;
  const { held, release } = hold("PutObject", manifests);
  const pausing = atA.ask("POST", `${at}/pause`, {});
  await held;
  expect((await atA.ask("DELETE", at)).body).toEqual({ killed: true });
  expect((await pausing).body.error).toMatchObject({ code: "sandbox_ended" });
  expect((await atB.ask("GET", at)).status).toBe(404);
  release();
});

test(
  "a kill does not wait until a checkpoint is fetched, and ends the waiting request with an error",
  longTimeout,
  async () => {
    const [atA, atB] = servers.clients;
    const { sandbox } = await atA.create(persistent);
    const at = `/sandboxes/${sandbox.id}`;
    await atA.ask("POST", `${at}/pause`, {});
    const { held, release } = hold("GetObject", memory);
    const running = atB.ask("POST", `${at}/commands`, { shell: "true" });
    await held;
    expect((await atB.ask("DELETE", at)).body).toEqual({ killed: true });
    expect((await running).body.error).toMatchObject({ code: "sandbox_ended" });
    release();
    await expect.poll(async () => (await atA.ask("GET", at)).status).toBe(404);
  },
);

test("only servers with the same store may notify, and an ephemeral sandbox runs on", longTimeout, async () => {
  const [atA, atB] = servers.clients;
  const { sandbox } = await atA.create({ driver: "gvisor" });
  const { sandbox: asked } = await atA.create(persistent);
  const path = `/leases/${sandbox.id}/notify`;
  const proof = async (store: ObjectStore, of = path): Promise<Record<string, string>> => ({
    [serverProofHeader]: await new SharedSecret(store).prove("POST", of),
  });
  const directory = await makeDataDir();
  const other = await FileObjectStore.open(directory);
  const ours = await openStore(JSON.parse(servers.store.flags()[1] ?? "") as StoreConfig);
  onTestFinished(async () => {
    await Promise.all([other.close(), ours.close()]);
    await rm(directory, { recursive: true });
  });
  const strangers: [ApiClient, string, Record<string, string>][] = [
    [atA.as(""), path, {}],
    [atA, path, {}],
    [atA, path, await proof(other)],
    [atA, path, await proof(ours, `/leases/${asked.id}/notify`)],
    [atA.as(""), `/leases/${"x".repeat(20)}/notify`, {}],
    [atA.as(""), "/leases/no-id/notify", {}],
  ];
  for (const [api, at, headers] of strangers) {
    const { status, body } = await api.ask("POST", at, undefined, headers);
    expect([status, body.error?.message]).toEqual([
      403,
      "Cannot notify lease: only a server with the same metadata store may ask for it",
    ]);
  }
  // An effect of the notification would come a little after the reply.
  for (let count = 0; count < 5; count += 1) {
    expect((await atA.as("").ask("POST", path, undefined, await proof(ours))).status).toBe(204);
    expect((await atA.run(sandbox.id, { shell: "echo on" })).stdout).toBe("on\n");
  }
  expect((await atB.run(asked.id, { shell: "echo there" })).stdout).toBe("there\n");
  expect((await atA.run(sandbox.id, { shell: "echo on" })).stdout).toBe("on\n");
  await Promise.all([atB.ask("DELETE", `/sandboxes/${asked.id}`), atA.ask("DELETE", `/sandboxes/${sandbox.id}`)]);
});
