// @module-tag gvisor
import type { SandboxInfo } from "@atoll/protocol";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { sharedBucket, type SharedS3Store } from "../support/shared-store.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

const lasting = { driver: "gvisor", persistent: true } as const;
const unhurried = { timeout: 180_000 };

let store: SharedS3Store;
let servers: TestServer[] = [];
beforeAll(async () => {
  store = await sharedBucket();
  servers = await Promise.all([1, 2].map(() => startTestServer({ flags: store.flags() })));
});
afterEach(() => store.calm());
afterAll(async () => {
  await Promise.all(servers.map((server) => server.dispose()));
  await store?.[Symbol.asyncDispose]();
});
const clients = (): [ApiClient, ApiClient] =>
  servers.map(({ url, key }) => new ApiClient(url, key)) as [ApiClient, ApiClient];

/** Keeps requests of this kind back until `release` is called. */
function hold(operation: string, key: RegExp): { held: Promise<void>; release: () => void } {
  let release = (): void => undefined;
  const until = new Promise<void>((resolve) => {
    release = resolve;
  });
  const held = new Promise<void>((resolve) => {
    store.setFaults((request) => {
      if (request.operation !== operation || !key.test(request.key)) return undefined;
      resolve();
      return { do: "hold", until };
    });
  });
  return { held, release: () => release() };
}
const manifests = /checkpoints\/.*manifest\.json$/;
const memory = /checkpoints\/.*\/memory\//;

test("what is asked of a sandbox while its pause is stored wakes it", unhurried, async () => {
  const [atA] = clients();
  const { sandbox } = await atA.create(lasting);
  const at = `/sandboxes/${sandbox.id}`;
  await atA.run(sandbox.id, { shell: "echo kept >note" });
  const { held, release } = hold("PutObject", manifests);
  const pausing = atA.ask("POST", `${at}/pause`, {});
  await held;
  const running = atA.run(sandbox.id, { shell: "cat note" });
  // It has come as far as it can: the pause has the turn, and the sandbox counts as this server's until that is over.
  expect((await atA.ask<SandboxInfo>("GET", at)).body).toMatchObject({
    state: "paused",
    server: { url: servers[0]?.url },
  });
  release();
  expect((await pausing).status).toBe(200);
  expect((await running).stdout).toBe("kept\n");
  expect((await atA.ask<SandboxInfo>("GET", at)).body).toMatchObject({ state: "running" });
  await atA.ask("DELETE", at);
});

test("a kill does not wait for a checkpoint to be stored, and who paused is told", unhurried, async () => {
  const [atA, atB] = clients();
  const { sandbox } = await atA.create(lasting);
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
  "a kill does not wait for a checkpoint to be fetched, and who waits for the sandbox is told",
  unhurried,
  async () => {
    const [atA, atB] = clients();
    const { sandbox } = await atA.create(lasting);
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
