// @module-tag gvisor
import { once } from "node:events";
import { readdir, readFile, rm } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { isSandboxError, type SandboxInfo } from "@atoll/protocol";
import { Atoll, Sandbox } from "@atoll/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { RunningAtoll } from "../support/atoll-command.ts";
import { makeDataDir } from "../support/test-root.ts";
import { startTestServerProcess, type TestServerProcess } from "../support/test-server.ts";

let dataDir: string;
let server: TestServerProcess;
let key: string;
let tenantKey: string;
let operator: Atoll;
let tenant: Atoll;
let outside: Server;

async function start(): Promise<void> {
  server = await startTestServerProcess({
    dataDir,
    flags: [
      "--isolate-after-hits",
      "2",
      "--policy",
      JSON.stringify({ drivers: ["gvisor", "local"], egress: { allow: ["127.0.0.1"] } }),
    ],
  });
  key = server.key === "" ? key : server.key;
  operator = new Atoll({ baseUrl: server.url, apiKey: key });
  if (tenantKey !== undefined) tenant = new Atoll({ baseUrl: server.url, apiKey: tenantKey });
}

beforeAll(async () => {
  // The answer never ends: only a cut ends the connection.
  outside = createServer((_request, response) => void response.write("reached\n"));
  await new Promise<void>((resolve) => outside.listen(0, "127.0.0.1", resolve));
  dataDir = await makeDataDir();
  await start();
  const policy = {
    drivers: ["gvisor" as const, "local" as const],
    egress: { allow: ["127.0.0.1"], deny: [] },
    limits: {},
  };
  tenantKey = (await operator.keys.create({ name: "tenant", policy })).secret;
  tenant = new Atoll({ baseUrl: server.url, apiKey: tenantKey });
});
afterAll(async () => {
  operator.close();
  tenant.close();
  await server.dispose();
  await rm(dataDir, { recursive: true, force: true });
  outside.closeAllConnections();
  outside.close();
});

const sandboxOf = (id: string, client: Atoll = tenant) => new Sandbox(client, id as Sandbox["id"]);
const isolatedOf = async (id: string) => (await sandboxOf(id).getInfo()).isolated;

/** Everything that a tenant could try in order to make an isolated sandbox run or vanish. */
async function attempts(id: string): Promise<Record<string, string>> {
  const mine = sandboxOf(id);
  const api = new ApiClient(server.url, tenantKey);
  const ways: Record<string, () => Promise<unknown>> = {
    exec: () => mine.commands.run("true"),
    read: () => mine.files.read("/etc/passwd"),
    write: () => mine.files.write("/tmp/x", "x"),
    resume: () => mine.resume(),
    restart: () => mine.resume({ memory: false }),
    pause: () => mine.pause(),
    fork: () => mine.fork(),
    rollback: () => mine.rollback(1),
    snapshot: () => mine.snapshot("stolen"),
    egress: () => mine.setEgress({ allow: ["127.0.0.1"] }),
    timeout: () => mine.update({ timeouts: { idleMs: 1_000, onTimeout: "kill" } }),
    port: () => mine.getUrl(80, { public: true }),
    release: () => mine.release(),
    evidence: () => mine.evidence(),
    kill: () => mine.kill(),
    deadline: async () => {
      const { status, body } = await api.ask("POST", `/sandboxes/${id}/ports/80/wait`, {});
      if (status >= 400) throw Object.assign(new Error(body.error?.message), { code: body.error?.code });
    },
  };
  const results = await Promise.all(
    Object.entries(ways).map(async ([name, attempt]) => {
      try {
        await attempt();
        return [name, "worked"] as const;
      } catch (error) {
        return [name, String((error as { code?: string }).code)] as const;
      }
    }),
  );
  return Object.fromEntries(results);
}

function allRefused(results: Record<string, string>): void {
  const { release, evidence, ...others } = results;
  expect([release, evidence]).toEqual(["permission_denied", "permission_denied"]);
  expect(others).toEqual(Object.fromEntries(Object.keys(others).map((name) => [name, "isolated"])));
}

async function events(id: string, type: string): Promise<void> {
  for await (const event of operator.events({ cursor: 0, sandboxId: id })) if (event.type === type) return;
}

test("a guest that breaks the protocol isolates its sandbox, which only an operator can kill", async () => {
  const { id } = await Sandbox.create({ client: tenant, driver: "local" });
  const attack = 'for end in /proc/1/fd/*; do test -p "$end" && echo garbage-instead-of-a-frame >"$end"; done';
  await sandboxOf(id).commands.run("echo before the attack");
  await sandboxOf(id)
    .commands.run(attack, { user: "root", background: true })
    .catch(() => undefined);
  await events(id, "sandbox.isolated");
  await expect.poll(() => isolatedOf(id)).toMatchObject({ kind: "protocol_violation", heldAs: "ended" });
  allRefused(await attempts(id));
  const { lines } = await operator.audit.query({ what: "isolate" });
  expect(lines.at(-1)).toMatchObject({ who: "server", sandboxId: id, result: "ok" });

  const output = join(await makeDataDir(), "evidence");
  await using saving = new RunningAtoll({ url: server.url, key }, ["evidence", id, "--output", output]);
  expect(await saving.ended).toMatchObject({ exitCode: 0 });
  const about = JSON.parse(await readFile(join(output, "evidence", "isolated.json"), "utf8")) as object;
  expect(about).toMatchObject({
    sandbox: { id },
    reports: expect.arrayContaining([expect.objectContaining({ kind: "protocol_violation" })]) as object,
  });
  const audit = await readFile(join(output, "evidence", "now-audit.jsonl"), "utf8");
  expect(audit).toContain('"what":"runCommand"');
  expect(audit).toContain('"what":"isolate"');
  const commands = await readdir(join(output, "commands"), { recursive: true });
  const logs = await Promise.all(
    commands.filter((name) => name.endsWith("head")).map((name) => readFile(join(output, "commands", name), "utf8")),
  );
  expect(logs.join("\n")).toContain("before the attack");
  await rm(join(output, ".."), { recursive: true });

  expect(await sandboxOf(id, operator).kill()).toBe(true);
});

test("an isolated sandbox stays saved across a kill -9 of the server, and goes on when released", async () => {
  const { id } = await Sandbox.create({ client: tenant, timeouts: { idleMs: 60_000, onTimeout: "kill" } });
  await sandboxOf(id).files.write("/home/user/note", "kept");
  const reach = `exec 3<>/dev/tcp/127.0.0.1/$ATOLL_NONE; true`;
  await sandboxOf(id)
    .commands.run(reach)
    .catch(() => undefined);
  const count = "n=0; while :; do n=$((n+1)); echo $n > /home/user/count; sleep 0.05; done";
  await sandboxOf(id).commands.run(count, { background: true });
  const info = await sandboxOf(id, operator).isolate({ reason: "it looks odd" });
  expect(info).toMatchObject({ state: "paused", isolated: { kind: "operator", heldAs: "checkpoint" } });
  expect(info.endsAtMs).toBeUndefined();
  allRefused(await attempts(id));
  await server.signal("SIGKILL");
  await start();
  expect(await sandboxOf(id).getInfo()).toMatchObject({ state: "paused", isolated: { reason: "it looks odd" } });
  allRefused(await attempts(id));
  expect((await sandboxOf(id, operator).release()).isolated).toBeUndefined();
  expect(await sandboxOf(id).files.read("/home/user/note")).toBe("kept");
  const before = Number(await sandboxOf(id).files.read("/home/user/count"));
  await expect.poll(async () => Number(await sandboxOf(id).files.read("/home/user/count"))).toBeGreaterThan(before);
  expect(await sandboxOf(id).kill()).toBe(true);
});

test("a sandbox that cannot be saved is cut off and frozen, also for the next server", async () => {
  const { port } = outside.address() as AddressInfo;
  const egress = { allow: [`127.0.0.1:${port}`] };
  const { id } = await Sandbox.create({ client: tenant, driver: "local", egress });
  const mine = sandboxOf(id);
  const connected = once(outside, "request") as Promise<[IncomingMessage]>;
  await mine.commands.run(`curl -sSN --noproxy '' http://127.0.0.1:${port}/`, { background: true });
  const [{ socket }] = await connected;
  const cut = once(socket, "close");
  await mine.commands.run("while :; do date +%s%N > /tmp/now; sleep 0.02; done", { background: true });
  const info = await sandboxOf(id, operator).isolate();
  expect(info).toMatchObject({ state: "running", isolated: { heldAs: "frozen" } });
  await cut;
  allRefused(await attempts(id));
  await server.signal("SIGKILL");
  await start();
  expect(await isolatedOf(id)).toMatchObject({ heldAs: "frozen" });
  allRefused(await attempts(id));
  await sandboxOf(id, operator).release();
  const read = () => sandboxOf(id).files.read("/tmp/now");
  const before = await read();
  await expect.poll(read).not.toBe(before);
  await sandboxOf(id).kill();
});

test("a sandbox whose programs are ended by seccomp again and again is isolated", async () => {
  const { id } = await Sandbox.create({ client: tenant, driver: "local" });
  for (let time = 0; time < 3; time += 1) {
    await sandboxOf(id)
      .commands.run("kill -SYS $$")
      .catch((error: unknown) => {
        if (!isSandboxError(error)) throw error;
      });
  }
  await events(id, "sandbox.isolated");
  await expect.poll(() => isolatedOf(id)).toMatchObject({ kind: "seccomp_kill" });
  const released: SandboxInfo = await sandboxOf(id, operator).release();
  expect(released.isolated).toBeUndefined();
  await sandboxOf(id).kill();
});

test("a sandbox that reaches its limits again and again is isolated", async () => {
  const limits = { memoryBytes: 64 * 1024 ** 2 };
  const { id } = await Sandbox.create({ client: tenant, driver: "local", limits });
  const run = () => sandboxOf(id).commands.run(`exec python3 -c "b'x' * 100 * 1024 ** 2"`);
  expect((await run()).outOfMemory).toBe(true);
  expect(await isolatedOf(id)).toBeUndefined();
  // The sandbox may be saved before the answer comes.
  await run().catch((error: unknown) => {
    if (!isSandboxError(error)) throw error;
  });
  await events(id, "sandbox.isolated");
  const isolated = {
    kind: "limit_violations",
    reason: expect.stringContaining("it reached its limits again and again"),
  };
  expect(await isolatedOf(id)).toMatchObject(isolated);
  await sandboxOf(id, operator).release();
  await sandboxOf(id).kill();
});
