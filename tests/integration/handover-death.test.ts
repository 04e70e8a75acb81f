// @module-tag gvisor
import type { CommandInfo, SandboxInfo, SandboxPaused } from "@atoll/protocol";
import { openStore, type StoreConfig } from "@atoll/storage";
import { expect, onTestFinished, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { eventOf } from "../support/api-events.ts";
import { startCrashingServers } from "../support/crashing-servers.ts";
import type { Fault } from "../support/object-servers/faults.ts";
import { createSandboxWithNote } from "../support/sandbox-with-note.ts";
import { sharedBucket, type SharedS3Store } from "../support/shared-store.ts";
import { startTestServer, startTestServerProcess, type TestServer } from "../support/test-server.ts";

const persistent = { driver: "gvisor", persistent: true } as const;

const clientOf = ({ url, key }: Pick<TestServer, "url" | "key">): ApiClient => new ApiClient(url, key);

async function infoOf(api: ApiClient, id: string): Promise<SandboxInfo> {
  return (await api.ask<SandboxInfo>("GET", `/sandboxes/${id}`)).body;
}

/** Holds requests back for ever, as a network does whose other end is dead. */
class HeldRequests {
  readonly #store: SharedS3Store;
  readonly #seen = new Map<string, () => void>();

  constructor(store: SharedS3Store) {
    this.#store = store;
  }

  /** Returns a promise per rule that resolves when a matching request was held back. */
  hold(rules: readonly ((request: { operation: string; key: string }) => boolean)[]): Promise<void>[] {
    const held = rules.map((_, index) => new Promise<void>((resolve) => void this.#seen.set(String(index), resolve)));
    this.#store.setFaults((request): Fault | undefined => {
      const index = rules.findIndex((fits) => fits(request));
      if (index === -1) return undefined;
      this.#seen.get(String(index))?.();
      return { do: "hold", until: new Promise(() => undefined) };
    });
    return held;
  }
}

/** The time covers several servers, many sandboxes, and the expiry of a lease. */
const longTimeout = { timeout: 300_000 };

test(
  "servers that are killed during a handover lose nothing that was stored, and name the checkpoint that goes on",
  longTimeout,
  async () => {
    const store = await sharedBucket();
    onTestFinished(() => store[Symbol.asyncDispose]());
    const { flags, a, b, c } = await startCrashingServers(store);
    onTestFinished(() => c.dispose());
    onTestFinished(() => b.dispose());
    const last: { server: TestServer } = { server: a };
    onTestFinished(() => last.server.dispose());
    const [atA, atB, atC] = [clientOf(a), clientOf(b), clientOf(c)];
    const [unpublished, unwritten, fetched] = (await Promise.all([1, 2, 3].map(() => createSandboxWithNote(atA)))) as [
      string,
      string,
      string,
    ];

    const manifestOf = (id: string, n: number): string => `checkpoints/${id}/${n}/manifest.json`;
    let isPublished = false;
    const held = new HeldRequests(store).hold([
      // The owner is killed before the checkpoint is complete.
      ({ operation, key }) => operation === "PutObject" && key === manifestOf(unpublished, 2),
      // The owner is killed when the checkpoint is complete and the metadata do not name it yet.
      ({ operation, key }) => {
        isPublished ||= operation === "PutObject" && key === manifestOf(unwritten, 2);
        return isPublished && operation === "PutObject" && key === `sandboxes/${unwritten}/metadata.json`;
      },
      // The next server is killed when it has the lease and has not fetched the sandbox yet.
      ({ operation, key }) => operation === "GetObject" && key.startsWith(`checkpoints/${fetched}/2/memory/`),
    ]);
    const notes = [unpublished, unwritten].map((id) => atC.run(id, { shell: "cat note" }));
    const lost = atB.run(fetched, { shell: "true" }).catch(() => undefined);
    await Promise.all(held);
    await Promise.all([a.signal("SIGKILL"), b.signal("SIGKILL"), lost]);
    store.calm();

    const all = await Promise.all([...notes, atC.run(fetched, { shell: "cat note" })]);
    expect(all.map(({ stdout }) => stdout)).toEqual(["one\n", "one\n", "one\ntwo\n"]);
    for (const id of [unpublished, unwritten]) {
      const { takenOver } = await infoOf(atC, id);
      expect(takenOver).toMatchObject({ fromServer: { url: a.url }, checkpoint: 1 });
      expect(await eventOf(c, "sandbox.taken_over", id)).toMatchObject({ ...takenOver });
    }
    expect((await infoOf(atC, fetched)).takenOver).toBeUndefined();
    // The checkpoint number that the dead server had used is not used again.
    const paused = await atC.ask<SandboxPaused>("POST", `/sandboxes/${unpublished}/pause`, {});
    expect(paused.body.checkpoint).toBe(3);

    const again = await startTestServer({ flags, dataDir: a.dataDir });
    last.server = again;
    const atAgain = new ApiClient(again.url, a.key);
    for (const id of [unpublished, unwritten])
      await eventOf({ url: again.url, key: a.key }, "sandbox.copy_dropped", id);
    expect(await infoOf(atAgain, unwritten)).toMatchObject({ state: "running", server: { url: c.url } });
    expect((await atAgain.run(unwritten, { shell: "cat note" })).stdout).toBe("one\n");
  },
);

test(
  "a server that is killed has its sandboxes again after a restart, before its leases expire",
  longTimeout,
  async () => {
    const flags = ["--lease-ttl-ms", "600000"];
    const first = await startTestServerProcess({ flags });
    const last: { server: TestServer } = { server: first };
    onTestFinished(() => last.server.dispose());
    const api = clientOf(first);
    const { sandbox } = await api.create(persistent);
    const command = await api.start(sandbox.id, { shell: "read line; echo got $line", stdin: true });
    await first.signal("SIGKILL");
    const next = await startTestServer({ flags, dataDir: first.dataDir });
    last.server = next;
    const again = new ApiClient(next.url, first.key);
    const path = `/sandboxes/${sandbox.id}/commands/${command.id}`;
    await again.fetch("POST", `${path}/stdin?offset=0`, { body: "it\n" });
    const end = await again.ask<CommandInfo>("GET", `${path}/wait?timeoutMs=60000`);
    expect(end.body).toMatchObject({ state: "exited", exitCode: 0, stdoutBytes: 7 });
    expect(await infoOf(again, sandbox.id)).toMatchObject({ state: "running", server: { url: next.url } });
    expect((await infoOf(again, sandbox.id)).takenOver).toBeUndefined();
  },
);

test("a server that is killed while it creates a sandbox leaves nothing of it in the store", longTimeout, async () => {
  const store = await sharedBucket();
  onTestFinished(() => store[Symbol.asyncDispose]());
  const flags = store.flags();
  const bucket = await openStore(JSON.parse(flags[1] ?? "") as StoreConfig);
  onTestFinished(() => bucket.close());
  const stored = async (): Promise<string[]> => {
    const keys: string[] = [];
    for await (const { key } of bucket.list("sandboxes/")) keys.push(key);
    return keys;
  };
  const first = await startTestServerProcess({ flags });
  const last: { server: TestServer } = { server: first };
  onTestFinished(() => last.server.dispose());
  let isWritten = false;
  let arrive = (): void => undefined;
  const arrived = new Promise<void>((resolve) => {
    arrive = resolve;
  });
  store.setFaults(({ operation, key }) => {
    if (!key.endsWith("/metadata.json") || operation === "GetObject") return undefined;
    // The object is written, and the server never receives the response.
    if (operation === "PutObject" && !isWritten) {
      isWritten = true;
      return { do: "act-then-cut" };
    }
    arrive();
    return { do: "hold", until: new Promise(() => undefined) };
  });
  const creating = clientOf(first)
    .create(persistent)
    .catch(() => undefined);
  await arrived;
  await first.signal("SIGKILL");
  await creating;
  store.calm();
  expect(await stored()).toHaveLength(2);
  last.server = await startTestServer({ flags, dataDir: first.dataDir });
  await expect.poll(stored).toEqual([]);
});
