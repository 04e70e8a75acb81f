// @module-tag gvisor
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type {
  CheckpointInfo,
  CommandInfo,
  KeyCreated,
  SandboxForked,
  SandboxInfo,
  SandboxPaused,
  SandboxResumed,
} from "@atoll/protocol";
import { afterEach, expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { runAtoll } from "../support/atoll-command.ts";
import { startTestServerProcess, type TestServerProcess } from "../support/test-server.ts";

let server: TestServerProcess | undefined;
afterEach(async () => {
  await server?.dispose();
  server = undefined;
});

async function start(options: Parameters<typeof startTestServerProcess>[0] = {}): Promise<TestServerProcess> {
  server = await startTestServerProcess(options);
  return server;
}

const soon = { interval: 100 };
/** The interval is longer than the idle timeout, because each request makes the sandbox busy. */
const infrequently = { interval: 3_000 };
const gvisor = { driver: "gvisor" } as const;
const counting = "i=0; while read line; do i=$((i+1)); echo $line $i; done; exit 7";

async function stateOf(api: ApiClient, id: string): Promise<string> {
  return (await api.ask<SandboxInfo>("GET", `/sandboxes/${id}`)).body.state;
}

async function outputOf(api: ApiClient, path: string): Promise<string> {
  const info = await api.ask<CommandInfo>("GET", path);
  return `${info.body.state} ${info.body.stdoutBytes}`;
}

test("a command survives a pause and a kill of its server, and its next input resumes the sandbox", async () => {
  const first = await start();
  const api = new ApiClient(first.url, first.key);
  const { sandbox } = await api.create(gvisor);
  const command = await api.start(sandbox.id, { shell: counting, stdin: true });
  const path = `/sandboxes/${sandbox.id}/commands/${command.id}`;
  await api.fetch("POST", `${path}/stdin?offset=0`, { body: "a\n" });
  await expect.poll(() => outputOf(api, path), soon).toBe("running 4");

  const paused = await api.ask<SandboxPaused>("POST", `/sandboxes/${sandbox.id}/pause`, {});
  expect(paused.body).toMatchObject({ checkpoint: 1, ended: [], sandbox: { state: "paused", runningCommands: 1 } });
  const total = Object.values(paused.body.phases).reduce((sum, ms) => sum + ms, 0);
  expect(total).toBeCloseTo(paused.body.totalMs, 3);
  // Reading the output does not resume the sandbox.
  expect(await outputOf(api, path)).toBe("running 4");
  expect(await stateOf(api, sandbox.id)).toBe("paused");
  await first.signal("SIGKILL");

  const second = await start({ dataDir: first.dataDir });
  const again = new ApiClient(second.url, first.key);
  expect(await stateOf(again, sandbox.id)).toBe("paused");
  expect(await outputOf(again, path)).toBe("running 4");
  await again.fetch("POST", `${path}/stdin?offset=2`, { body: "b\n" });
  expect(await stateOf(again, sandbox.id)).toBe("running");
  await again.fetch("DELETE", `${path}/stdin`);
  const end = await again.ask<CommandInfo>("GET", `${path}/wait?timeoutMs=60000`);
  expect(end.body).toMatchObject({ state: "exited", exitCode: 7, stdoutBytes: 8 });
  expect(await (await again.fetch("GET", `${path}/output`)).text()).toContain("b 2");
});

test("files, ports and new commands wake a paused sandbox, and a resume of a running one is refused", async () => {
  const api = await start().then(({ url, key }) => new ApiClient(url, key));
  const { sandbox } = await api.create(gvisor);
  const at = `/sandboxes/${sandbox.id}`;
  const pause = (): Promise<unknown> => api.ask("POST", `${at}/pause`, {});
  await api.fetch("PUT", `${at}/files?path=/home/user/note`, { body: "kept" });
  await pause();
  expect(await (await api.fetch("GET", `${at}/files?path=/home/user/note`)).text()).toBe("kept");
  expect(await stateOf(api, sandbox.id)).toBe("running");
  await pause();
  const command = await api.start(sandbox.id, { shell: "cat note" });
  const end = await api.ask<CommandInfo>("GET", `${at}/commands/${command.id}/wait?timeoutMs=60000`);
  expect(end.body).toMatchObject({ exitCode: 0, stdoutBytes: 4 });
  const refused = await api.ask("POST", `${at}/resume`, {});
  expect(refused.body.error).toMatchObject({ code: "invalid_state", details: { state: "running" } });
  const list = await api.ask<{ checkpoints: CheckpointInfo[] }>("GET", `${at}/checkpoints`);
  expect(list.body.checkpoints.map(({ n, parent }) => [n, parent])).toEqual([
    [1, null],
    [2, 1],
  ]);
});

test("the commands pause, checkpoints, resume and rollback work", async () => {
  const running = await start();
  const { sandbox } = await new ApiClient(running.url, running.key).create(gvisor);
  const paused = await runAtoll(running, ["pause", sandbox.id]);
  expect(paused).toMatchObject({ exitCode: 0, stdout: `${sandbox.id}\n` });
  expect((await runAtoll(running, ["ls", "--state", "paused", "-q"])).stdout).toBe(`${sandbox.id}\n`);
  expect((await runAtoll(running, ["checkpoints", sandbox.id])).stdout).toMatch(/^1\t-\t\S+(\t\d+){3}\tserver\n/);
  const info = (await runAtoll(running, ["info", sandbox.id])).stdout.split("\n");
  expect(info).toEqual(expect.arrayContaining(["memory\t1073741824", "when idle\tkilled after 15m"]));
  const resumed = await runAtoll(running, ["resume", "--json", sandbox.id]);
  expect(JSON.parse(resumed.stdout)).toMatchObject({ checkpoint: 1, sandbox: { state: "running" } });
  const again = await runAtoll(running, ["resume", sandbox.id]);
  expect(again).toMatchObject({ exitCode: 1, stderr: expect.stringContaining("it is running") });
  const waiting = await runAtoll(running, ["exec", "-d", "--no-keep-alive", "--json", sandbox.id, "--", "sleep", "60"]);
  expect(JSON.parse(waiting.stdout)).toMatchObject({ state: "running", keepAlive: false });
  const back = await runAtoll(running, ["rollback", "--json", sandbox.id, "1"]);
  expect(JSON.parse(back.stdout)).toMatchObject({ checkpoint: 1, left: 2, sandbox: { state: "running" } });
  const removed = await runAtoll(running, ["checkpoints", "--json", "--remove", "2", sandbox.id]);
  expect(JSON.parse(removed.stdout)).toEqual({ removed: true });
});

test("a resume without memory starts again from the files, and reports the commands as lost", async () => {
  const api = await start().then(({ url, key }) => new ApiClient(url, key));
  const { sandbox } = await api.create(gvisor);
  const at = `/sandboxes/${sandbox.id}`;
  await api.fetch("PUT", `${at}/files?path=/home/user/note`, { body: "kept" });
  const command = await api.start(sandbox.id, { shell: "sleep 1000" });
  await api.ask("POST", `${at}/pause`, {});
  const resumed = await api.ask<SandboxResumed>("POST", `${at}/resume`, { memory: false });
  expect(resumed.body).toMatchObject({ checkpoint: 1, sandbox: { state: "running" } });
  const lost = await api.ask<CommandInfo>("GET", `${at}/commands/${command.id}/wait?timeoutMs=60000`);
  expect(lost.body).toMatchObject({ state: "lost", exitCode: null });
  expect(await (await api.fetch("GET", `${at}/files?path=/home/user/note`)).text()).toBe("kept");
});

test("an open deleted file is named, nothing is lost, and force ends its process", async () => {
  const api = await start().then(({ url, key }) => new ApiClient(url, key));
  const { sandbox } = await api.create(gvisor);
  const at = `/sandboxes/${sandbox.id}`;
  const command = await api.start(sandbox.id, { shell: "exec 3>gone; rm gone; echo ready; exec sleep 1000" });
  await expect.poll(() => outputOf(api, `${at}/commands/${command.id}`), soon).toBe("running 6");
  const refused = await api.ask("POST", `${at}/pause`, {});
  expect(refused.body.error).toMatchObject({ code: "unsaveable" });
  expect(JSON.stringify(refused.body.error)).toContain("/home/user/gone");
  expect(await stateOf(api, sandbox.id)).toBe("running");
  const forced = await api.ask<SandboxPaused>("POST", `${at}/pause`, { force: true });
  expect(forced.body.ended).toEqual([expect.objectContaining({ command: expect.stringContaining("sleep") })]);
  expect(forced.body.sandbox.state).toBe("paused");
});

test("an idle sandbox is paused after its timeout, and the timeout starts again when it wakes", async () => {
  const api = await start().then(({ url, key }) => new ApiClient(url, key));
  const { sandbox } = await api.create({ ...gvisor, timeouts: { idleMs: 1_000, onTimeout: "pause" } });
  await expect.poll(() => stateOf(api, sandbox.id), infrequently).toBe("paused");
  expect((await api.ask<SandboxInfo>("GET", `/sandboxes/${sandbox.id}`)).body.endsAtMs).toBeUndefined();
  await api.start(sandbox.id, { shell: "true" });
  await expect.poll(() => stateOf(api, sandbox.id), infrequently).toBe("paused");
});

test("a server that pauses on exit leaves its sandboxes paused", async () => {
  const first = await start({ flags: ["--pause-on-exit"] });
  const { sandbox } = await new ApiClient(first.url, first.key).create(gvisor);
  expect(await first.signal("SIGTERM")).toEqual({ code: 0, signal: null });
  const second = await start({ dataDir: first.dataDir });
  const api = new ApiClient(second.url, first.key);
  expect(await stateOf(api, sandbox.id)).toBe("paused");
  const command = await api.start(sandbox.id, { shell: "echo back" });
  const end = await api.ask<CommandInfo>("GET", `/sandboxes/${sandbox.id}/commands/${command.id}/wait?timeoutMs=60000`);
  expect(end.body).toMatchObject({ exitCode: 0, stdoutBytes: 5 });
});

test("copies and their parent go on with the running commands, independent of each other", async () => {
  const running = await start();
  const api = new ApiClient(running.url, running.key);
  const { sandbox } = await api.create({ ...gvisor, labels: { job: "7" } });
  const command = await api.start(sandbox.id, { shell: counting, stdin: true });
  const of = (id: string): string => `/sandboxes/${id}/commands/${command.id}`;
  await api.fetch("POST", `${of(sandbox.id)}/stdin?offset=0`, { body: "a\n" });
  await expect.poll(() => outputOf(api, of(sandbox.id)), soon).toBe("running 4");
  const policy = { egress: { allow: ["*"], deny: ["*:25"] } };
  const forker = (await api.ask<KeyCreated>("POST", "/keys", { name: "forker", ownOnly: false, policy })).body;
  const asForker = api.as(forker.secret);
  const forked = await asForker.ask<SandboxForked>("POST", `/sandboxes/${sandbox.id}/fork`, { count: 2 });
  expect(forked.status).toBe(201);
  const copies = forked.body.sandboxes;
  expect(copies.map((copy) => copy.sandbox)).toEqual(
    [1, 2].map(() => expect.objectContaining({ state: "running", labels: { job: "7" }, runningCommands: 1 })),
  );
  const ceilingOf = async (id: string): Promise<unknown> => {
    const facts = await readFile(join(running.dataDir, "sandboxes", id, "owner", "sandbox.json"), "utf8");
    return (JSON.parse(facts) as { egressCeiling?: unknown }).egressCeiling;
  };
  // The ceiling of the key that forks also applies to the copies.
  expect(await ceilingOf(sandbox.id)).toEqual({ allow: ["*"], deny: [] });
  for (const copy of copies) expect(await ceilingOf(copy.sandbox.id)).toEqual(policy.egress);
  const ids = [sandbox.id, ...copies.map((copy) => copy.sandbox.id)];
  for (const [index, id] of ids.entries()) {
    await api.fetch("POST", `${of(id)}/stdin?offset=2`, { body: `${"x".repeat(index + 1)}\n` });
    await api.fetch("DELETE", `${of(id)}/stdin`);
  }
  for (const [index, id] of ids.entries()) {
    const end = await api.ask<CommandInfo>("GET", `${of(id)}/wait?timeoutMs=60000`);
    expect(end.body).toMatchObject({ sandboxId: id, state: "exited", exitCode: 7, stdoutBytes: 4 + index + 4 });
    expect(await (await api.fetch("GET", `${of(id)}/output`)).text()).toContain(`${"x".repeat(index + 1)} 2`);
  }
  // The token of a copy is valid only for that copy.
  const [first] = copies;
  const guest = new ApiClient(running.url, first?.token ?? "");
  expect((await guest.ask("GET", `/sandboxes/${sandbox.id}`)).body.error).toBeDefined();
  await api.ask("DELETE", `/sandboxes/${sandbox.id}`);
  const left = await api.start(copies[1]?.sandbox.id ?? "", { shell: "true" });
  expect(left.state).toBeDefined();
});

test("the server keeps as many checkpoints of a sandbox as its setting says", async () => {
  const { url, key } = await start({ flags: ["--keep-checkpoints", "1"] });
  const api = new ApiClient(url, key);
  const { sandbox } = await api.create(gvisor);
  for (let round = 0; round < 2; round += 1) {
    await api.run(sandbox.id, { shell: "true" });
    await api.ask<SandboxPaused>("POST", `/sandboxes/${sandbox.id}/pause`, {});
  }
  const { body } = await api.ask<{ checkpoints: CheckpointInfo[] }>("GET", `/sandboxes/${sandbox.id}/checkpoints`);
  expect(body.checkpoints.map(({ n }) => n)).toEqual([2]);
});
