// @module-tag gvisor
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { pollUntil, run } from "@atoll/host";
import type { CommandInfo, SandboxInfo } from "@atoll/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { eventOf } from "../support/api-events.ts";
import { freezerOf } from "../support/freezer.ts";
import { patience } from "../support/patience.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

// Sandboxes on a busy machine that answer late must not count as unresponsive.
const flags = ["--guest-timeout-ms", String(3_000 * patience)];
let server: TestServer;
let api: ApiClient;
beforeAll(async () => {
  server = await startTestServer({ flags });
  api = new ApiClient(server.url, server.key);
});
afterAll(async () => {
  await server.dispose();
});

/** Code in the sandbox runs these attacks, so the tests cannot rely on code in the sandbox to undo them. */
const attacks = {
  "is stopped": "kill -STOP 1",
  "is traced by another process": `python3 -c "
import ctypes, os, time
if os.fork(): os._exit(0)
os.setsid()
ctypes.CDLL(None).ptrace(16, 1, 0, 0)
time.sleep(1000)"`,
};

const root = { user: "root", timeoutMs: 3_000 };

async function code(method: string, path: string, body?: unknown): Promise<string | number> {
  const answer = await api.ask(method, path, body);
  return answer.body.error?.code ?? answer.status;
}

/** Signals every process of a container, like a machine that has no time for it. */
async function signalContainer(id: string, signal: "SIGSTOP" | "SIGCONT"): Promise<void> {
  const group = await freezerOf(server.dataDir, id);
  const pids = (await readFile(join(group, "cgroup.procs"), "utf8")).trim().split("\n");
  for (const pid of pids) process.kill(Number(pid), signal);
}

/** Continues the guest from outside, because nothing can be started in the sandbox. */
async function continueGuest(id: string): Promise<void> {
  const runs = join(server.dataDir, "sandboxes", id, "run");
  const [container = ""] = await readdir(runs);
  const args = ["--root", join(runs, container, "state"), "kill", container, "CONT"];
  expect(
    await run("runsc", args, { signal: new AbortController().signal, timeoutMs: 60_000 * patience }),
  ).toMatchObject({ exitCode: 0 });
}

async function untilResponsive(path: string): Promise<void> {
  const isBack = async (): Promise<boolean> => (await api.ask<SandboxInfo>("GET", path)).body.guest === undefined;
  expect(await pollUntil(isBack, { deadlineMs: 60_000 * patience })).toBe(true);
}

describe.concurrent("a guest that code in its sandbox made unresponsive", () => {
  test.for([
    ["gvisor", "is stopped"],
    ["gvisor", "is traced by another process"],
    ["local", "is traced by another process"],
  ] as const)(
    "%s: a guest that %s makes commands fail, and its sandbox reports it and can be killed",
    async ([driver, how]) => {
      const { sandbox } = await api.create({ driver });
      const path = `/sandboxes/${sandbox.id}`;
      expect(await code("POST", `${path}/commands`, { ...root, shell: `${attacks[how]}; sleep 1000` })).toBe(
        "guest_silent",
      );
      const event = await eventOf(server, "sandbox.guest", sandbox.id);
      expect(event.guest).toBe("unresponsive");
      expect((await api.ask<SandboxInfo>("GET", path)).body).toMatchObject({ state: "running", guest: "unresponsive" });
      const asked = await Promise.all([
        code("POST", `${path}/commands`, { shell: "true" }),
        code("GET", `${path}/files?path=/etc/hostname`),
        code("GET", `${path}/usage`),
        code("POST", `${path}/fork`, {}),
      ]);
      expect(asked).toEqual([
        "guest_silent",
        "guest_silent",
        "guest_silent",
        driver === "local" ? "unsupported" : "guest_silent",
      ]);
      expect(await api.ask("DELETE", path)).toMatchObject({ status: 200, body: { killed: true } });
      expect(await code("GET", path)).toBe("not_found");
    },
  );

  test("a kill does not wait for a command that starts", async () => {
    const { sandbox } = await api.create();
    const path = `/sandboxes/${sandbox.id}`;
    await signalContainer(sandbox.id, "SIGSTOP");
    const starting = code("POST", `${path}/commands`, { shell: "true" });
    expect(await api.ask("DELETE", path)).toMatchObject({ status: 200, body: { killed: true } });
    expect(await starting).toBe("sandbox_ended");
  });

  test("pause and rollback are refused, files can be saved, and the sandbox goes on with its guest", async () => {
    const { sandbox } = await api.create({ driver: "gvisor" });
    const path = `/sandboxes/${sandbox.id}`;
    await api.run(sandbox.id, { shell: "echo kept > note" });
    expect(await code("POST", `${path}/pause`, {})).toBe(200);
    expect(await code("POST", `${path}/resume`, {})).toBe(200);
    await api.run(sandbox.id, { shell: "echo more >> note" });
    expect(await code("POST", `${path}/commands`, { ...root, shell: "kill -STOP 1; sleep 1000" })).toBe("guest_silent");
    const asked = [
      await code("POST", `${path}/pause`, {}),
      await code("POST", `${path}/rollback`, { checkpoint: 1 }),
      await code("POST", `${path}/snapshots`, { name: "of-a-silent-one" }),
    ];
    expect(asked).toEqual(["guest_silent", "guest_silent", 201]);
    await continueGuest(sandbox.id);
    await untilResponsive(path);
    expect((await api.run(sandbox.id, { shell: "cat note" })).stdout).toBe("kept\nmore\n");
    const copy = await api.create({ driver: "gvisor", snapshot: "of-a-silent-one" });
    expect((await api.run(copy.sandbox.id, { shell: "cat note" })).stdout).toBe("kept\nmore\n");
  });
});

test.for(["-KILL", "-SEGV", "-34"])(
  "when a command ends because of kill %s of its guest, the sandbox has failed",
  async (signal) => {
    const { sandbox } = await api.create({ driver: "gvisor" });
    const path = `/sandboxes/${sandbox.id}`;
    const killed = await api.run(sandbox.id, { user: "root", shell: `kill ${signal} 1; exec sleep 1000` });
    const { body } = await api.ask<SandboxInfo>("GET", path);
    expect([killed.command.state, body.state, body.reason?.kind]).toEqual(["lost", "failed", "exited"]);
    await api.ask("DELETE", path);
  },
);

test("a new server serves other sandboxes at once, and an unresponsive one when its guest answers", async () => {
  const silent = await api.create();
  const other = await api.create();
  const counting = await api.start(silent.sandbox.id, { shell: "read line; echo $line; exit 3", stdin: true });
  await signalContainer(silent.sandbox.id, "SIGSTOP");
  await server.stop();
  const next = await startTestServer({ dataDir: server.dataDir, flags });
  const { key } = server;
  server = { ...next, key };
  api = new ApiClient(next.url, key);
  const path = `/sandboxes/${silent.sandbox.id}`;
  const wait = `${path}/commands/${counting.id}/wait?timeoutMs=60000`;
  expect((await api.run(other.sandbox.id, { shell: "echo here" })).stdout).toBe("here\n");
  expect((await api.ask<SandboxInfo>("GET", path)).body).toMatchObject({ state: "running", guest: "unresponsive" });
  expect(await code("POST", `${path}/commands`, { shell: "true" })).toBe("guest_silent");
  await signalContainer(silent.sandbox.id, "SIGCONT");
  await untilResponsive(path);
  const answer = await api.fetch("POST", `${path}/commands/${counting.id}/stdin`, { body: "carried on\n" });
  expect(answer.status).toBe(200);
  expect((await api.ask<CommandInfo>("GET", wait)).body).toMatchObject({ state: "exited", exitCode: 3 });
});
