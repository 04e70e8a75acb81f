// @module-tag gvisor
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import type { ListedCheckpoint, SandboxRolledBack } from "@atoll/protocol";
import { expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { createSandboxWithNote } from "../support/sandbox-with-note.ts";
import { sharedBucket } from "../support/shared-store.ts";
import { startTestServer, startTestServerProcess } from "../support/test-server.ts";

const before = "one\ntwo\n";
const after = "one\n";

/**
 * The requests to the store at which the server dies, during a rollback to a checkpoint that has to be fetched, and the
 * state that is found then.
 */
const deaths = [
  { at: "claiming the checkpoint", operation: "PutObject", key: /\/1\/manifest\.json$/, found: before },
  { at: "fetching it", operation: "GetObject", key: /\/1\/memory\//, found: before },
  { at: "storing the state before", operation: "PutObject", key: /\/memory\//, found: after },
];

test("a server that is killed during a rollback from the store leaves the state before or after it", async () => {
  await using store = await sharedBucket();
  const flags = store.flags();
  await using a = await startTestServer({ flags });
  await using b = await startTestServerProcess({ flags });
  const [atA, atB] = [new ApiClient(a.url, a.key), new ApiClient(b.url, b.key)];
  const crashing = await Promise.all(deaths.map(async (death) => ({ ...death, id: await createSandboxWithNote(atA) })));
  for (const { id } of crashing) expect((await atB.run(id, { shell: "cat note" })).stdout).toBe(before);

  const { promise: forGood, resolve: clear } = newPromise();
  const held = crashing.map((death) => ({ ...death, ...newPromise() }));
  store.setFaults(({ operation, key }) => {
    const death = held.find((one) => key.includes(one.id) && one.operation === operation && one.key.test(key));
    death?.resolve();
    return death === undefined ? undefined : { do: "hold", until: forGood };
  });
  for (const { id } of crashing)
    void atB.ask("POST", `/sandboxes/${id}/rollback`, { checkpoint: 1 }).catch(() => undefined);
  await Promise.all(held.map(({ promise }) => promise));
  await b.signal("SIGKILL");
  store.calm();
  clear();

  const next = await startTestServer({ dataDir: b.dataDir, flags });
  try {
    const api = new ApiClient(next.url, b.key);
    for (const { at, id, found } of crashing) {
      expect({ at, note: (await api.run(id, { shell: "cat note" })).stdout }).toEqual({ at, note: found });
    }
    // A transfer of this server may be under way.
    await expect.poll(() => readdir(join(b.dataDir, "transfers"))).toEqual([]);

    // The completed rollback has stored the state before it by now. While the store refuses that, it is stored when
    // another server acquires the sandbox.
    const id = crashing.at(-1)?.id ?? "";
    const stored = async (): Promise<number[]> => {
      const { body } = await atA.ask<{ checkpoints: ListedCheckpoint[] }>("GET", `/sandboxes/${id}/checkpoints`);
      return body.checkpoints.filter((checkpoint) => checkpoint.stored).map(({ n }) => n);
    };
    const { left = 0 } = (await api.ask<SandboxRolledBack>("POST", `/sandboxes/${id}/rollback`, { checkpoint: 1 }))
      .body;
    store.setFaults(({ operation, key }) =>
      operation === "PutObject" && key.includes(`${id}/${left}/`)
        ? { do: "refuse", status: 403, code: "AccessDenied" }
        : undefined,
    );
    expect((await atA.run(id, { shell: "cat note" })).stdout).toBe(after);
    expect([left > 3, await stored()]).toEqual([true, [1, 2, 3, expect.any(Number)]]);
    store.calm();
    await expect.poll(stored, { timeout: 60_000 }).toContain(left);
    for (const { id } of crashing) await api.ask("DELETE", `/sandboxes/${id}`);
  } finally {
    await next.stop();
  }
});

function newPromise(): { promise: Promise<void>; resolve: () => void } {
  let resolve = (): void => undefined;
  const promise = new Promise<void>((settle) => (resolve = settle));
  return { promise, resolve };
}
