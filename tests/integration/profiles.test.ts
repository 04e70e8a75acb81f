// @module-tag gvisor
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { CommandResult, KeyCreated, ResolvedProfile, SandboxCreated, SandboxInfo } from "@atoll/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { runAtoll } from "../support/atoll-command.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

const MiB = 1024 ** 2;

/** Profiles of the operator: roomy, with a way to one host; and the same for a short time. */
const brief = {
  isolation: "high",
  limits: { memoryBytes: 256 * MiB, cpus: 1, processes: 64, runTimeMs: 600_000 },
  allowedOperations: ["network_client", "network_server"],
  egress: { allow: ["registry.test"] },
};

const quick = { ...brief, limits: { ...brief.limits, runTimeMs: 1_500 } };

let server: TestServer;
let admin: ApiClient;
beforeAll(async () => {
  server = await startTestServer({ flags: ["--profiles", JSON.stringify({ brief, quick })] });
  admin = new ApiClient(server.url, server.key);
});
afterAll(() => server.dispose());

async function createWith(profile: string, more: object = {}, api = admin): Promise<SandboxInfo> {
  const { status, body } = await api.ask<SandboxCreated>("POST", "/sandboxes", { profile, ...more });
  expect(body.error).toBeUndefined();
  expect(status).toBe(201);
  return body.sandbox;
}

async function makeKey(policy: object): Promise<KeyCreated> {
  const { body } = await admin.ask<KeyCreated>("POST", "/keys", { name: "test", policy });
  expect(body.error).toBeUndefined();
  return body;
}

/** What became of a command: its output and end, or the error of its sandbox. */
async function outcomeOf(id: string, shell: string): Promise<string> {
  const { body } = await admin.ask<CommandResult>("POST", `/sandboxes/${id}/commands`, { shell });
  if (body.error !== undefined) return body.error.message;
  const { outOfMemory, signal, lostBecause } = body.command;
  return body.stdout + JSON.stringify({ outOfMemory, signal, lostBecause });
}

function auditLines(): Record<string, unknown>[] {
  const text = readFileSync(join(server.dataDir, "audit", "audit.jsonl"), "utf8");
  return text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
}

const fillMemory = (mib: number) => `python3 -c "
held = bytearray()
for _ in range(${mib}): held += b'x' * 1048576
print('kept', len(held))"`;

/** Starts processes until it cannot, prints how many there were, and ends them. */
const spawnMany = `python3 -c "
import os, signal
pids = []
try:
    while len(pids) < 500:
        pids.append(os.posix_spawn('/bin/sleep', ['sleep', '60'], {}))
except OSError as error:
    print('refused', error.errno, 'started', len(pids), flush=True)
for pid in pids: os.kill(pid, signal.SIGKILL)"`;

const connectOut = `python3 -c "
import socket
s = socket.create_connection(('127.0.0.1', 3128), 10)
s.sendall(b'CONNECT one.one.one.one:443 HTTP/1.1\\r\\nHost: one.one.one.one\\r\\n\\r\\n')
print(s.recv(200).decode())"`;

describe.for([
  ["high", 64, 50],
  ["medium", 128, 100],
  ["low", 256, 200],
] as const)("the profile %s", ([profile, memoryMiB, processes]) => {
  let sandbox: SandboxInfo;
  beforeAll(async () => {
    sandbox = await createWith(profile);
  });
  afterAll(() => admin.ask("DELETE", `/sandboxes/${sandbox.id}`));

  test("gives its limits, and is named in the description", async () => {
    expect(sandbox).toMatchObject({
      profile,
      driver: "gvisor",
      limits: { memoryBytes: memoryMiB * MiB, processes },
      endsAtMs: expect.any(Number),
    });
    const again = await admin.ask<SandboxInfo>("GET", `/sandboxes/${sandbox.id}`);
    expect(again.body.profile).toBe(profile);
  });

  test("stops new processes at its limit", async () => {
    const outcome = await outcomeOf(sandbox.id, spawnMany);
    // The server may notice the limit while it is reached, and then does what the profile says.
    expect(outcome).toMatch(/refused 11 started|SIGKILL|reached a limit: .*processes/);
    const started = Number(/started (\d+)/.exec(outcome)?.[1] ?? 0);
    expect(started).toBeLessThanOrEqual(processes);
  });

  test("does not let memory grow beyond its limit", async () => {
    const { id } = await createWith(profile);
    expect(await outcomeOf(id, fillMemory(8))).toContain("kept");
    const outcome = await outcomeOf(id, fillMemory(memoryMiB + 8));
    expect(outcome).not.toContain("kept");
    expect(outcome).toMatch(/"outOfMemory":true|SIGKILL|memory/);
    await admin.ask("DELETE", `/sandboxes/${id}`);
  });
});

test("high reaches nothing outside, cannot be given a way out, and serves no port", async () => {
  const { id, egress } = await createWith("high");
  expect(egress).toEqual({ allow: [], deny: [] });
  const asked = await admin.ask("PUT", `/sandboxes/${id}/egress`, { allow: ["example.com"] });
  expect(asked.body.error).toMatchObject({
    code: "permission_denied",
    message: expect.stringContaining("nothing outside can be reached under the profile high"),
    details: { rule: "allowedOperations.network_client", ceiling: "profile" },
  });
  const port = await admin.ask("PUT", `/sandboxes/${id}/ports/8000`, { isPublic: true });
  expect(port.body.error).toMatchObject({
    code: "permission_denied",
    details: { rule: "allowedOperations.network_server", ceiling: "profile" },
  });
  expect((await admin.ask("GET", `/sandboxes/${id}/ports/8000`)).body.error?.code).toBe("permission_denied");
  expect((await admin.ask("POST", `/sandboxes/${id}/ports/8000/wait`, {})).body.error?.code).toBe("permission_denied");
  const refused = auditLines().filter(({ sandboxId, result }) => sandboxId === id && result === "permission_denied");
  expect(refused).toContainEqual(
    expect.objectContaining({
      what: "setEgress",
      details: expect.objectContaining({ rule: "allowedOperations.network_client", ceiling: "profile" }),
    }),
  );
  const { stdout } = await admin.run(id, { shell: connectOut });
  expect(stdout).toContain("403");
  await admin.ask("DELETE", `/sandboxes/${id}`);
});

test("a sandbox ends when its run time is over, with the reason", async () => {
  const { id } = await createWith("quick");
  const reason = "it has run for 1500 ms, which is all that the profile quick allows";
  // The answer is the command with why its end is not known, or an error if its sandbox ended while it was started.
  expect(await outcomeOf(id, "sleep 600")).toContain(reason);
  await expect.poll(async () => (await admin.ask("GET", `/sandboxes/${id}`)).status).toBe(404);
  const timeouts = () => auditLines().filter(({ what, sandboxId }) => what === "timeout" && sandboxId === id);
  await expect
    .poll(timeouts)
    .toEqual([expect.objectContaining({ details: { timeout: "run_time", onTimeout: "kill" } })]);
});

test("run time is counted over pauses and goes on in forks, which keep the profile", async () => {
  const { runTimeMs } = brief.limits;
  const { id, endsAtMs, createdAtMs, egress } = await createWith("brief");
  expect(egress).toEqual({ allow: ["registry.test"], deny: [] });
  expect((endsAtMs ?? 0) - createdAtMs).toBe(runTimeMs);
  const paused = await admin.ask<{ sandbox: SandboxInfo }>("POST", `/sandboxes/${id}/pause`, {});
  expect(paused.body.sandbox.state).toBe("paused");
  const resumed = await admin.ask<{ sandbox: SandboxInfo }>("POST", `/sandboxes/${id}/resume`, {});
  const { endsAtMs: laterMs = 0, profile } = resumed.body.sandbox;
  expect(profile).toBe("brief");
  // What it ran before the pause counts, and the pause does not.
  expect(laterMs).toBeGreaterThan(endsAtMs ?? 0);
  expect(laterMs - Date.now()).toBeLessThan(runTimeMs);
  const forked = await admin.ask<{ sandboxes: SandboxCreated[] }>("POST", `/sandboxes/${id}/fork`, {});
  expect(forked.body.error).toBeUndefined();
  const copy = forked.body.sandboxes[0]?.sandbox;
  expect(copy).toMatchObject({ profile: "brief", limits: { processes: 64 }, egress });
  expect((copy?.endsAtMs ?? Infinity) - (copy?.createdAtMs ?? 0)).toBeLessThan(runTimeMs);
  await Promise.all([id, copy?.id].map((one) => admin.ask("DELETE", `/sandboxes/${one}`)));
});

test("a run under a profile ends at the run time of the profile", async () => {
  const { body } = await admin.ask<CommandResult>("POST", "/run", {
    profile: "quick",
    argv: ["sleep", "60"],
    timeoutMs: 50_000,
  });
  expect(body.command).toMatchObject({ state: "exited", timedOut: true });
});

describe("a key", () => {
  test("gives its default profile, and refuses what is weaker than its weakest", async () => {
    const { key, secret } = await makeKey({ profile: "high", weakestProfile: "medium" });
    expect(key.policy).toMatchObject({ profile: "high", weakestProfile: "medium" });
    const api = admin.as(secret);
    const own = await api.ask<SandboxCreated>("POST", "/sandboxes", {});
    expect(own.body.sandbox.profile).toBe("high");
    const weaker = [
      ["POST", "/sandboxes", { profile: "low" }],
      ["POST", "/sandboxes", { profile: "standard" }],
      ["POST", "/run", { profile: "low", argv: ["true"] }],
    ] as const;
    for (const [method, path, request] of weaker) {
      const { status, body } = await api.ask(method, path, request);
      expect(status).toBe(403);
      expect(body.error).toMatchObject({
        code: "permission_denied",
        message: expect.stringContaining("this key allows no profile that is weaker than medium"),
        details: { rule: "weakestProfile", ceiling: "key", weakestProfile: "medium" },
      });
    }
    const beyond = await api.ask("POST", "/sandboxes", { limits: { memoryBytes: 256 * MiB } });
    expect(beyond.body.error).toMatchObject({ details: { rule: "limits.memoryBytes", ceiling: "profile" } });
    await api.ask("DELETE", `/sandboxes/${own.body.sandbox.id}`);
  });

  test("cannot fork a sandbox whose profile is weaker than its weakest", async () => {
    const sandbox = await createWith("low");
    const { body: key } = await admin.ask<KeyCreated>("POST", "/keys", {
      name: "strict",
      ownOnly: false,
      policy: { weakestProfile: "high" },
    });
    const { body } = await admin.as(key.secret).ask("POST", `/sandboxes/${sandbox.id}/fork`, {});
    expect(body.error).toMatchObject({ code: "permission_denied", details: { rule: "weakestProfile" } });
    await admin.ask("DELETE", `/sandboxes/${sandbox.id}`);
  });

  test("is not made with a profile that does not exist, or a default that is weaker than its weakest", async () => {
    for (const policy of [{ profile: "lenient" }, { profile: "low", weakestProfile: "high" }]) {
      const { body } = await admin.ask("POST", "/keys", { name: "bad", policy });
      expect(body.error).toMatchObject({ code: "invalid_argument" });
    }
  });
});

test("atoll shows what each profile comes to, and creates with one", async () => {
  const listed = await runAtoll(server, ["profile", "ls"]);
  expect(listed.stdout.split("\n").map((line) => line.split("\t")[0])).toEqual([
    "high",
    "medium",
    "low",
    "standard",
    "brief",
    "quick",
    "",
  ]);
  const shown = await runAtoll(server, ["profile", "show", "high"]);
  expect(shown.exitCode).toBe(0);
  for (const text of ["67108864", "gVisor itself, which takes about", "1m", "nothing"])
    expect(shown.stdout).toContain(text);
  const resolved: ResolvedProfile = JSON.parse((await runAtoll(server, ["profile", "show", "brief", "--json"])).stdout);
  expect(resolved).toMatchObject({ isBuiltIn: false, isDefault: false, driver: "gvisor", missing: [] });
  expect((await runAtoll(server, ["profile", "show", "lenient"])).stderr).toContain("there is no such profile here");
  const id = (await runAtoll(server, ["create", "--profile", "medium"])).stdout.trim();
  expect((await runAtoll(server, ["info", id])).stdout).toMatch(/profile\s+medium/);
  const once = await runAtoll(server, ["run", "--profile", "high", "-l", "bash", "-c", "ulimit -u"]);
  expect(once.stdout).toBe("50\n");
  const made = await runAtoll(server, [
    "key",
    "create",
    "k",
    "--profile",
    "high",
    "--weakest-profile",
    "low",
    "--json",
  ]);
  expect(JSON.parse(made.stdout).key.policy).toMatchObject({ profile: "high", weakestProfile: "low" });
  await admin.ask("DELETE", `/sandboxes/${id}`);
});

test("a machine without runsc refuses a profile with what is missing, and gives no weaker sandbox", async () => {
  await using poor = await startTestServer({ flags: ["--runsc-path", "/nonexistent/runsc"] });
  const api = new ApiClient(poor.url, poor.key);
  const { status, body } = await api.ask("POST", "/sandboxes", { profile: "high" });
  expect(status).toBe(501);
  expect(body.error).toMatchObject({
    code: "unsupported",
    message: expect.stringContaining("this machine cannot provide the profile high with driver gvisor"),
    details: { profile: "high", missing: [{ what: expect.stringContaining("runsc") }] },
  });
  const shown = await runAtoll(poor, ["profile", "show", "high"]);
  expect(shown.exitCode).toBe(1);
  expect(shown.stdout).toMatch(/missing\s+runsc/);
  // The weakest level is also provided by the driver local, which the operator of this server allows.
  const low = await api.ask<SandboxCreated>("POST", "/sandboxes", { profile: "low" });
  expect(low.body.sandbox).toMatchObject({ driver: "local", profile: "low" });
});
