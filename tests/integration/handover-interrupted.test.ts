// @module-tag gvisor
import type { SandboxInfo } from "@atoll/protocol";
import { openStore, type StoreConfig } from "@atoll/storage";
import { expect, onTestFinished, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import type { FaultPlan } from "../support/object-servers/faults.ts";
import { sharedBucket } from "../support/shared-store.ts";
import { startTestServer, startTestServerProcess, type TestServer } from "../support/test-server.ts";

const persistent = { driver: "gvisor", persistent: true } as const;
const longTimeout = { timeout: 120_000 };
const soon = { timeout: 60_000 };

/**
 * Holds back the requests of two handovers to the store: the first one before the checkpoint is complete, the second
 * one when it is stored and only the lease has to be released.
 */
function holdHandovers([unstored, stored]: readonly string[]): { plan: FaultPlan; held: Promise<unknown> } {
  const seen = { manifest: false, metadata: false };
  const reached: (() => void)[] = [];
  const held = Promise.all([0, 1].map((step) => new Promise<void>((resolve) => (reached[step] = resolve))));
  const plan: FaultPlan = ({ operation, key }) => {
    if (operation !== "PutObject") return undefined;
    const isBefore = key === `checkpoints/${unstored}/1/manifest.json`;
    const isAfter = seen.metadata && key === `sandboxes/${stored}/lease.json`;
    seen.metadata ||= seen.manifest && key === `sandboxes/${stored}/metadata.json`;
    seen.manifest ||= key === `checkpoints/${stored}/1/manifest.json`;
    if (!isBefore && !isAfter) return undefined;
    reached[isBefore ? 0 : 1]?.();
    return { do: "hold", until: new Promise(() => undefined) };
  };
  return { plan, held };
}

test(
  "sandboxes whose handover was interrupted go on by themselves after a restart of their server if no server waits",
  longTimeout,
  async () => {
    const store = await sharedBucket();
    onTestFinished(() => store[Symbol.asyncDispose]());
    const flags = store.flags();
    const [a, b] = await Promise.all([startTestServerProcess({ flags }), startTestServer({ flags })]);
    onTestFinished(() => b.dispose());
    const last: { server: TestServer } = { server: a };
    onTestFinished(() => last.server.dispose());
    const [atA, atB] = [new ApiClient(a.url, a.key), new ApiClient(b.url, b.key)];
    const ids = await Promise.all([1, 2].map(async () => (await atA.create(persistent)).sandbox.id));
    await Promise.all(ids.map((id) => atA.run(id, { shell: "echo kept >/dev/shm/note" })));

    const { plan, held } = holdHandovers(ids);
    store.setFaults(plan);
    const leaving = new AbortController();
    const asking = ids.map((id) =>
      atB.fetch("POST", `/sandboxes/${id}/resume`, { signal: leaving.signal }).catch(() => undefined),
    );
    await held;
    await a.signal("SIGKILL");
    store.calm();
    leaving.abort();
    await Promise.all(asking);
    const bucket = await openStore(JSON.parse(flags[1] ?? "") as StoreConfig);
    onTestFinished(() => bucket.close());
    const waiterOf = async (id: string): Promise<unknown> => {
      const found = await bucket.get(`sandboxes/${id}/lease.json`);
      return (JSON.parse(found?.data.toString() ?? "{}") as { waiter?: unknown }).waiter;
    };
    for (const id of ids) await expect.poll(() => waiterOf(id), soon).toBeNull();

    const again = await startTestServer({ flags, dataDir: a.dataDir });
    last.server = again;
    const api = new ApiClient(again.url, a.key);
    for (const id of ids) {
      await expect
        .poll(async () => (await api.ask<SandboxInfo>("GET", `/sandboxes/${id}`)).body, soon)
        .toMatchObject({ state: "running", server: { url: again.url } });
      expect((await api.run(id, { shell: "cat /dev/shm/note" })).stdout).toBe("kept\n");
    }
  },
);
