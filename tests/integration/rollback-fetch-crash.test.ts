// @module-tag gvisor
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { makeNotedSandbox } from "../support/noted-sandbox.ts";
import { sharedBucket } from "../support/shared-store.ts";
import { startTestServer, startTestServerProcess } from "../support/test-server.ts";

const before = "one\ntwo\n";
const after = "one\n";

/** What a rollback to a checkpoint that has to be fetched asks of the store when its server dies, and which time is found then. */
const deaths = [
  { at: "laying claim to it", operation: "PutObject", key: /\/1\/manifest\.json$/, found: before },
  { at: "fetching it", operation: "GetObject", key: /\/1\/memory\//, found: before },
  { at: "storing what is left behind", operation: "PutObject", key: /\/memory\//, found: after },
];

test("a server that is killed over a rollback from the store leaves all of before or all of after", async () => {
  await using store = await sharedBucket();
  const flags = store.flags();
  await using a = await startTestServer({ flags });
  await using b = await startTestServerProcess({ flags });
  const [atA, atB] = [new ApiClient(a.url, a.key), new ApiClient(b.url, b.key)];
  const doomed = await Promise.all(deaths.map(async (death) => ({ ...death, id: await makeNotedSandbox(atA) })));
  for (const { id } of doomed) expect((await atB.run(id, { shell: "cat note" })).stdout).toBe(before);

  const { promise: forGood, resolve: clear } = newPromise();
  const held = doomed.map((death) => ({ ...death, ...newPromise() }));
  store.setFaults(({ operation, key }) => {
    const death = held.find((one) => key.includes(one.id) && one.operation === operation && one.key.test(key));
    death?.resolve();
    return death === undefined ? undefined : { do: "hold", until: forGood };
  });
  for (const { id } of doomed)
    void atB.ask("POST", `/sandboxes/${id}/rollback`, { checkpoint: 1 }).catch(() => undefined);
  await Promise.all(held.map(({ promise }) => promise));
  await b.signal("SIGKILL");
  store.calm();
  clear();

  const next = await startTestServer({ dataDir: b.dataDir, flags });
  try {
    const api = new ApiClient(next.url, b.key);
    for (const { at, id, found } of doomed) {
      expect({ at, note: (await api.run(id, { shell: "cat note" })).stdout }).toEqual({ at, note: found });
    }
    expect(await readdir(join(b.dataDir, "transfers"))).toEqual([]);
    for (const { id } of doomed) await api.ask("DELETE", `/sandboxes/${id}`);
  } finally {
    await next.stop();
  }
});

function newPromise(): { promise: Promise<void>; resolve: () => void } {
  let resolve = (): void => undefined;
  const promise = new Promise<void>((settle) => (resolve = settle));
  return { promise, resolve };
}
