// @module-tag gvisor
import { rename } from "node:fs/promises";
import { join } from "node:path";
import type {
  CommandInfo,
  PortInfo,
  SandboxForked,
  SandboxInfo,
  SandboxPage,
  SandboxRolledBack,
} from "@atoll/protocol";
import { Sandbox } from "@atoll/sdk";
import { openStore, type StoreConfig } from "@atoll/storage";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { eventOf } from "../support/api-events.ts";
import { sharedBucket, sharedDirectory, type SharedS3Store, type SharedStore } from "../support/shared-store.ts";
import { startTestServer, startTestServerProcess, type TestServer } from "../support/test-server.ts";

const soon = { interval: 50 };
const counting = "i=0; while read line; do i=$((i+1)); echo $line $i; done; exit 7";
/** The time covers two pauses and two resumes on a machine that is busy with other tests. */
const longTimeout = { timeout: 180_000 };
const persistent = { driver: "gvisor", persistent: true } as const;

async function infoOf(api: ApiClient, id: string): Promise<SandboxInfo> {
  return (await api.ask<SandboxInfo>("GET", `/sandboxes/${id}`)).body;
}

async function write(api: ApiClient, path: string, offset: number, line: string): Promise<Response> {
  return api.fetch("POST", `${path}/stdin?offset=${offset}`, { body: `${line}\n` });
}

/** The report about the process of `holdDeletedFile`, which cannot be saved. */
const ended = [{ command: expect.stringContaining("exec 7<>gone") }];

async function holdDeletedFile(api: ApiClient, id: string): Promise<void> {
  const { id: commandId } = await api.start(id, { shell: "exec 7<>gone; rm gone; echo held; read line", stdin: true });
  await expect.poll(() => outputOf(api, `/sandboxes/${id}/commands/${commandId}`), soon).toBe("running 5");
}

async function outputOf(api: ApiClient, path: string): Promise<string> {
  const info = await api.ask<CommandInfo>("GET", path);
  return `${info.body.state} ${info.body.stdoutBytes}`;
}

describe.for([
  { name: "a shared directory", open: sharedDirectory },
  { name: "a bucket", open: sharedBucket },
])("two servers that share $name", ({ open }) => {
  let store: SharedStore;
  let a: TestServer;
  let b: TestServer;
  let atA: ApiClient;
  let atB: ApiClient;
  beforeAll(async () => {
    store = await open();
    [a, b] = await Promise.all([startTestServer({ flags: store.flags() }), startTestServer({ flags: store.flags() })]);
    atA = new ApiClient(a.url, a.key);
    atB = new ApiClient(b.url, b.key);
  });
  afterAll(async () => {
    await Promise.all([a?.dispose(), b?.dispose()]);
    await store?.[Symbol.asyncDispose]();
  });

  test("hand over a sandbox and back with its memory, command, input, settings and token", longTimeout, async () => {
    const egress = { allow: ["example.com"], deny: [] };
    const { sandbox, token } = await atA.create({
      ...persistent,
      labels: { job: "7" },
      egress,
      env: { COLOUR: "blue" },
    });
    const at = `/sandboxes/${sandbox.id}`;
    expect(sandbox).toMatchObject({ persistent: true, state: "running", server: { url: a.url } });
    const command = await atA.start(sandbox.id, { shell: counting, stdin: true });
    const path = `${at}/commands/${command.id}`;
    await write(atA, path, 0, "a");
    await expect.poll(() => outputOf(atA, path), soon).toBe("running 4");
    await atA.fetch("PUT", `${at}/files?path=/home/user/note`, { body: "kept" });
    await atA.ask("PATCH", at, { labels: { job: "8" } });

    // Reading the sandbox's info does not move it.
    expect(await infoOf(atB, sandbox.id)).toMatchObject({
      state: "running",
      server: { url: a.url },
      labels: { job: "8" },
    });
    expect(await infoOf(atA, sandbox.id)).toMatchObject({ state: "running" });
    const withToken = new ApiClient(b.url, token);
    const strange = await new ApiClient(b.url, `${token}x`).ask("GET", at);
    expect(strange.body.error?.code).toBe("permission_denied");

    expect((await write(withToken, path, 2, "b")).status).toBe(200);
    await expect.poll(() => outputOf(atB, path), soon).toBe("running 8");
    expect(await infoOf(atB, sandbox.id)).toMatchObject({
      state: "running",
      server: { url: b.url },
      persistent: true,
      labels: { job: "8" },
      egress,
      createdAtMs: sandbox.createdAtMs,
    });
    expect(await infoOf(atA, sandbox.id)).toMatchObject({ state: "running", server: { url: b.url } });
    expect((await atB.run(sandbox.id, { shell: "cat note; echo -n $COLOUR" })).stdout).toBe("keptblue");

    await write(atA, path, 4, "c");
    await atA.fetch("DELETE", `${path}/stdin`);
    const end = await atA.ask<CommandInfo>("GET", `${path}/wait?timeoutMs=60000`);
    expect(end.body).toMatchObject({ state: "exited", exitCode: 7, stdoutBytes: 12 });
    const output = await (await atA.fetch("GET", `${path}/output`)).text();
    expect(["a 1", "b 2", "c 3"].filter((line) => !output.includes(line))).toEqual([]);
    expect((await infoOf(atA, sandbox.id)).takenOver).toBeUndefined();

    expect((await atB.ask("DELETE", at)).body).toEqual({ killed: true });
    expect((await atA.ask("GET", at)).status).toBe(404);
    expect((await atB.ask("GET", at)).status).toBe(404);
  });
});

describe("servers that share a bucket", () => {
  let store: SharedS3Store;
  let servers: TestServer[];
  beforeAll(async () => {
    store = await sharedBucket();
    servers = await Promise.all(Array.from({ length: 3 }, () => startTestServer({ flags: store.flags() })));
  });
  afterEach(() => store.calm());
  afterAll(async () => {
    await Promise.all(servers.map((server) => server.dispose()));
    await store?.[Symbol.asyncDispose]();
  });
  const clients = (): ApiClient[] => servers.map(({ url, key }) => new ApiClient(url, key));

  /** Holds the manifest of every checkpoint that is being stored back until `release` is called. */
  const holdManifests = (): { held: Promise<void>; release: () => void } => {
    let release = (): void => undefined;
    const until = new Promise<void>((resolve) => {
      release = resolve;
    });
    const held = new Promise<void>((resolve) => {
      store.setFaults(({ operation, key }) => {
        if (operation !== "PutObject" || !/checkpoints\/.*manifest\.json$/.test(key)) return undefined;
        resolve();
        return { do: "hold", until };
      });
    });
    return { held, release };
  };

  test(
    "one request waits during a handover, the sandbox is shown as resuming, and another server learns who waits",
    longTimeout,
    async () => {
      const [atA, atB, atC] = clients() as [ApiClient, ApiClient, ApiClient];
      const { sandbox } = await atA.create(persistent);
      await holdDeletedFile(atA, sandbox.id);
      const { held, release } = holdManifests();
      const running = atB.run(sandbox.id, { shell: "echo here" });
      await held;
      expect(await infoOf(atB, sandbox.id)).toMatchObject({ state: "resuming" });
      const refused = await atC.ask("POST", `/sandboxes/${sandbox.id}/commands`, { shell: "true" });
      expect(refused.body.error).toMatchObject({ code: "in_use", details: { waiter: { url: servers[1]?.url } } });
      release();
      expect((await running).stdout).toBe("here\n");
      // The metadata that the third server read for its refusal stay in its cache for a moment.
      await expect
        .poll(() => infoOf(atC, sandbox.id), soon)
        .toMatchObject({ state: "running", server: { url: servers[1]?.url } });
      const event = await eventOf(servers[0] as TestServer, "sandbox.handed_over", sandbox.id);
      expect(event).toMatchObject({ sandboxId: sandbox.id, toServer: { url: servers[1]?.url }, checkpoint: 1, ended });
      await atC.ask("DELETE", `/sandboxes/${sandbox.id}`);
    },
  );

  test("a sandbox whose new server no longer waits goes on where it was", longTimeout, async () => {
    const [atA, atB] = clients() as [ApiClient, ApiClient, ApiClient];
    const { sandbox } = await atA.create(persistent);
    const command = await atA.start(sandbox.id, { shell: counting, stdin: true });
    const path = `/sandboxes/${sandbox.id}/commands/${command.id}`;
    const bucket = await openStore(JSON.parse(store.flags()[1] ?? "") as StoreConfig);
    onTestFinished(() => bucket.close());
    const waiter = async (): Promise<unknown> => {
      const found = await bucket.get(`sandboxes/${sandbox.id}/lease.json`);
      return (JSON.parse(found?.data.toString() ?? "{}") as { waiter?: unknown }).waiter;
    };
    const leaving = new AbortController();
    const { held, release } = holdManifests();
    const body = JSON.stringify({ shell: "true" });
    const headers = { "content-type": "application/json" };
    const asking = atB
      .fetch("POST", `/sandboxes/${sandbox.id}/commands`, { body, headers, signal: leaving.signal })
      .catch(() => undefined);
    await held;
    leaving.abort();
    await asking;
    await expect.poll(waiter, soon).toBeNull();
    release();
    await expect
      .poll(() => infoOf(atA, sandbox.id), soon)
      .toMatchObject({ state: "running", server: { url: servers[0]?.url } });
    await write(atA, path, 0, "a");
    await expect.poll(() => outputOf(atA, path), soon).toBe("running 4");
    const { stdout } = await atB.run(sandbox.id, { shell: "echo there" });
    expect(stdout).toBe("there\n");
    await atB.ask("DELETE", `/sandboxes/${sandbox.id}`);
  });

  test(
    "a pause that cannot be stored reports that, loses nothing, and is stored when the store is back",
    longTimeout,
    async () => {
      const [atA, atB] = clients() as [ApiClient, ApiClient, ApiClient];
      const { sandbox } = await atA.create(persistent);
      const at = `/sandboxes/${sandbox.id}`;
      await atA.fetch("PUT", `${at}/files?path=/home/user/note`, { body: "kept" });
      await holdDeletedFile(atA, sandbox.id);
      store.setFaults(({ key }) =>
        /(checkpoints|layers)\//.test(key) ? { do: "refuse", status: 503, code: "SlowDown" } : undefined,
      );
      const paused = await atA.ask("POST", `${at}/pause`, { force: true });
      expect(paused.body.error).toMatchObject({ code: "storage_failed", details: { checkpoint: 1, ended } });
      expect(paused.body.error?.message).toContain("it is paused here");
      expect(await infoOf(atA, sandbox.id)).toMatchObject({ state: "paused", server: { url: servers[0]?.url } });
      store.calm();
      await expect.poll(async () => (await infoOf(atA, sandbox.id)).server, soon).toBeUndefined();
      expect(await (await atB.fetch("GET", `${at}/files?path=/home/user/note`)).text()).toBe("kept");
      await atB.ask("DELETE", at);
    },
  );

  test("forks of a persistent sandbox are persistent and independent", longTimeout, async () => {
    const [atA, atB] = clients() as [ApiClient, ApiClient, ApiClient];
    const { sandbox } = await atA.create({ ...persistent, labels: { job: "1" } });
    await atA.run(sandbox.id, { shell: "echo parent >note" });
    const forked = await atA.ask<SandboxForked>("POST", `/sandboxes/${sandbox.id}/fork`, { count: 2 });
    const copies = forked.body.sandboxes.map((copy) => copy.sandbox);
    expect(copies).toMatchObject([
      { persistent: true, state: "running", labels: { job: "1" } },
      { persistent: true, state: "running" },
    ]);
    const [one = sandbox, two = sandbox] = copies;
    expect((await atB.run(one.id, { shell: "echo one >>note; cat note" })).stdout).toBe("parent\none\n");
    expect((await atA.run(two.id, { shell: "cat note" })).stdout).toBe("parent\n");
    expect((await atB.run(sandbox.id, { shell: "cat note" })).stdout).toBe("parent\n");
    for (const { id } of [sandbox, one, two]) await atA.ask("DELETE", `/sandboxes/${id}`);
  });

  test("a sandbox that was rolled back moves with the state of the rollback", longTimeout, async () => {
    const [atA, atB] = clients() as [ApiClient, ApiClient, ApiClient];
    const { sandbox } = await atA.create(persistent);
    const at = `/sandboxes/${sandbox.id}`;
    await atA.run(sandbox.id, { shell: "echo one >note" });
    await atA.ask("POST", `${at}/pause`, {});
    await atA.run(sandbox.id, { shell: "echo two >>note" });
    const rolledBack = await atA.ask<SandboxRolledBack>("POST", `${at}/rollback`, { checkpoint: 1 });
    expect(rolledBack.body).toMatchObject({ checkpoint: 1, left: 2, sandbox: { server: { url: servers[0]?.url } } });
    const needed = await atA.ask("DELETE", `${at}/checkpoints/1`);
    expect(needed.body.error?.code).toBe("in_use");
    expect((await atA.run(sandbox.id, { shell: "cat note; echo three >>note" })).stdout).toBe("one\n");
    expect((await atB.run(sandbox.id, { shell: "cat note" })).stdout).toBe("one\nthree\n");
    // The first server stored this checkpoint, and the second one, which never had it, removes it.
    expect((await atB.ask("DELETE", `${at}/checkpoints/1`)).body).toEqual({ removed: true });
    expect((await atB.ask("DELETE", `${at}/checkpoints/1`)).body).toEqual({ removed: false });
    await atB.ask("DELETE", at);
  });

  test("the SDK attaches on another server to a command that runs on the first", longTimeout, async () => {
    const [atA] = clients() as [ApiClient];
    const [, b] = servers as [TestServer, TestServer, TestServer];
    const { sandbox } = await atA.create(persistent);
    const command = await atA.start(sandbox.id, { shell: counting, stdin: true });
    const there = await Sandbox.connect(sandbox.id, { baseUrl: b.url, apiKey: b.key });
    const same = await there.commands.connect(command.id);
    await same.sendStdin("over there\n");
    await same.closeStdin();
    const { stdout, exitCode } = await same.wait();
    expect({ stdout, exitCode }).toEqual({ stdout: "over there 1\n", exitCode: 7 });
    expect((await there.getInfo()).server?.url).toBe(b.url);
    await there.kill();
  });

  test(
    "a port of a sandbox on another server is reached through the server that gets the request",
    longTimeout,
    async () => {
      const [atA, atB] = clients() as [ApiClient, ApiClient, ApiClient];
      const { sandbox } = await atA.create(persistent);
      const at = `/sandboxes/${sandbox.id}`;
      await atA.start(sandbox.id, { shell: "echo page >index.html; python3 -m http.server 8080" });
      await atA.ask("POST", `${at}/ports/8080/wait`, { timeoutMs: 60_000 });
      const { body } = await atB.ask<PortInfo>("POST", `${at}/ports/8080/wait`, { timeoutMs: 60_000 });
      expect(body.url.startsWith(servers[1]?.url ?? "no URL")).toBe(true);
      expect(await (await fetch(`${body.url}?atoll_token=${body.token}`)).text()).toBe("page\n");
      expect(await infoOf(atB, sandbox.id)).toMatchObject({ state: "running", server: { url: servers[1]?.url } });
      await atA.ask("DELETE", at);
    },
  );

  test(
    "a server that pauses on exit leaves its sandboxes to the others, with all running commands",
    longTimeout,
    async () => {
      const [, atB] = clients() as [ApiClient, ApiClient, ApiClient];
      await using leaving = await startTestServerProcess({ flags: [...store.flags(), "--pause-on-exit"] });
      const there = new ApiClient(leaving.url, leaving.key);
      const { sandbox } = await there.create(persistent);
      const command = await there.start(sandbox.id, { shell: counting, stdin: true });
      const path = `/sandboxes/${sandbox.id}/commands/${command.id}`;
      await write(there, path, 0, "a");
      await expect.poll(() => outputOf(there, path), soon).toBe("running 4");
      expect(await leaving.signal("SIGTERM")).toEqual({ code: 0, signal: null });
      expect(await infoOf(atB, sandbox.id)).toMatchObject({ state: "paused" });
      await write(atB, path, 2, "b");
      await atB.fetch("DELETE", `${path}/stdin`);
      const end = await atB.ask<CommandInfo>("GET", `${path}/wait?timeoutMs=60000`);
      expect(end.body).toMatchObject({ state: "exited", exitCode: 7, stdoutBytes: 8 });
      expect((await infoOf(atB, sandbox.id)).takenOver).toBeUndefined();
      await atB.ask("DELETE", `/sandboxes/${sandbox.id}`);
    },
  );

  test(
    "a sandbox that another server kills is removed from the server that has its local copy",
    longTimeout,
    async () => {
      const [atA, atB] = clients() as [ApiClient, ApiClient, ApiClient];
      const a = servers[0] as TestServer;
      const { sandbox: met } = await atA.create(persistent);
      const { sandbox: notified } = await atA.create(persistent);
      for (const { id } of [met, notified]) await atA.ask("POST", `/sandboxes/${id}/pause`, {});
      // This also holds at the very moment of the kill, whether or not this server has been notified.
      expect((await atB.ask("DELETE", `/sandboxes/${met.id}`)).body).toEqual({ killed: true });
      await expect.poll(async () => (await atA.ask("GET", `/sandboxes/${met.id}`)).status, soon).toBe(404);
      // No request for the other sandbox reaches the first server.
      expect((await atB.ask("DELETE", `/sandboxes/${notified.id}`)).body).toEqual({ killed: true });
      await eventOf(a, "sandbox.copy_dropped", notified.id);
      const { body } = await atA.ask<SandboxPage>("GET", "/sandboxes");
      expect(body.sandboxes.filter(({ id }) => [met.id, notified.id].includes(id))).toEqual([]);
      expect((await atA.ask("DELETE", `/sandboxes/${notified.id}`)).body).toEqual({ killed: false });
    },
  );

  test("a server that cannot resume a sandbox refuses the request, and the sandbox runs on", longTimeout, async () => {
    const [atA, atB] = clients() as [ApiClient, ApiClient, ApiClient];
    const { sandbox } = await atA.create(persistent);
    const at = `/sandboxes/${sandbox.id}`;
    const command = await atA.start(sandbox.id, { shell: counting, stdin: true });
    const path = `${at}/commands/${command.id}`;
    const guests = join(servers[1]?.dataDir ?? "", "guest");
    await rename(guests, `${guests}.away`);
    try {
      const { body } = await atB.ask("POST", `${at}/commands`, { shell: "true" });
      expect(body.error).toMatchObject({ code: "unrestorable", details: { sandboxId: sandbox.id } });
      expect(body.error?.message).toMatch(/^Cannot run sandbox .* on this machine: it has no guest /);
      expect(await infoOf(atB, sandbox.id)).toMatchObject({ state: "running", server: { url: servers[0]?.url } });
      const { body: checkpoints } = await atA.ask<{ checkpoints: unknown[] }>("GET", `${at}/checkpoints`);
      expect(checkpoints.checkpoints).toEqual([]);
      await write(atA, path, 0, "a");
      await expect.poll(() => outputOf(atA, path), soon).toBe("running 4");
    } finally {
      await rename(`${guests}.away`, guests);
    }
    expect((await atB.run(sandbox.id, { shell: "echo here" })).stdout).toBe("here\n");
    await atB.ask("DELETE", at);
  });

  test("a persistent sandbox that cannot be stored is refused before anything is created", async () => {
    const [atA] = clients() as [ApiClient];
    const local = await atA.ask("POST", "/sandboxes", { persistent: true, driver: "local" });
    expect(local.body.error?.code).toBe("unsupported");
    const none = await startTestServer({ flags: ["--checkpoint-store", "none"] });
    try {
      const refused = await new ApiClient(none.url, none.key).ask("POST", "/sandboxes", { persistent: true });
      expect(refused.body.error).toMatchObject({ code: "unsupported", details: { setting: "checkpointStore" } });
    } finally {
      await none.dispose();
    }
  });
});
