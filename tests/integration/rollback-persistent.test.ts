// @module-tag gvisor
import { rm } from "node:fs/promises";
import {
  SandboxId,
  type CommandInfo,
  type ListedCheckpoint,
  type SandboxInfo,
  type SandboxRolledBack,
} from "@atoll/protocol";
import { FileObjectStore } from "@atoll/storage";
import { describe, expect, onTestFinished, test } from "vitest";
import { manifestKey } from "../../packages/server/src/persistence/checkpoint-keys.ts";
import { StoredCheckpoint } from "../../packages/server/src/persistence/checkpoint-manifest.ts";
import { SandboxHandle } from "../../packages/server/src/persistence/sandbox-handle.ts";
import type { ApiClient } from "../support/api-client.ts";
import { openManagerStore } from "../support/manager-store.ts";
import { ServerPair } from "../support/server-pair.ts";
import { sharedDirectory } from "../support/shared-store.ts";
import { createIn, openTestManager, readAll, start } from "../support/test-manager.ts";
import { makeDataDir } from "../support/test-root.ts";

const soon = { timeout: 60_000, interval: 50 };
const counting = "i=0; while read line; do i=$((i+1)); echo $line $i; done; exit 7";

/** Writes a line of two bytes to a command that answers with four bytes. */
async function writeLine(api: ApiClient, path: string, offset: number, line: string): Promise<void> {
  expect((await api.fetch("POST", `${path}/stdin?offset=${offset}`, { body: `${line}\n` })).status).toBe(200);
  await expect
    .poll(async () => (await api.ask<CommandInfo>("GET", path)).body.stdoutBytes, soon)
    .toBeGreaterThanOrEqual(2 * offset + 4);
}

const servers = new ServerPair(sharedDirectory);

test("a persistent sandbox is rolled back on its server, and goes on from there on another one", async () => {
  const [atA, atB] = servers.clients;
  const { sandbox } = await atA.create({ driver: "gvisor", persistent: true });
  const at = `/sandboxes/${sandbox.id}`;
  const command = await atA.start(sandbox.id, { shell: counting, stdin: true });
  const path = `${at}/commands/${command.id}`;
  const write = (api: ApiClient, offset: number, line: string): Promise<void> => writeLine(api, path, offset, line);
  await write(atA, 0, "a");
  expect((await atA.ask("POST", `${at}/pause`, {})).status).toBe(200);
  await write(atA, 2, "b");

  const back = await atA.ask<SandboxRolledBack>("POST", `${at}/rollback`, { checkpoint: 1 });
  expect(back.body).toMatchObject({ checkpoint: 1, sandbox: { state: "running", server: { url: servers.a.url } } });
  expect(back.body.left).toBeGreaterThan(1);
  await write(atA, 2, "c");

  await write(atB, 4, "d");
  expect((await atB.ask<SandboxInfo>("GET", at)).body).toMatchObject({
    state: "running",
    server: { url: servers.b.url },
  });
  await atB.fetch("DELETE", `${path}/stdin`);
  const end = await atB.ask<CommandInfo>("GET", `${path}/wait?timeoutMs=60000`);
  expect(end.body).toMatchObject({ state: "exited", exitCode: 7, stdoutBytes: 12, rollbacks: 1 });
  const output = await (await atB.fetch("GET", `${path}/output`)).text();
  expect(["a 1", "c 2", "d 3"].filter((line) => !output.includes(line))).toEqual([]);
  expect(output).not.toContain("b 2");
  expect((await atB.ask("DELETE", at)).body).toEqual({ killed: true });
});

test.for(["rollback", "fork"] as const)("the checkpoint of a failed %s is stored", async (operation) => {
  const directory = await makeDataDir();
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const dataDir = await makeDataDir();
  const { sandboxStores, persistence, close } = await openManagerStore(directory, { name: "a", dataDir });
  onTestFinished(close);
  let isBroken = false;
  const host = await openTestManager({
    dataDir,
    engineOptions: {
      atStep: (step) => {
        if (isBroken && step === "resume: verified") throw new Error("no space left on device");
      },
    },
    persistence,
  });
  onTestFinished(() => host.dispose());
  const { manager } = host;
  const id = await createIn(manager, { driver: "gvisor", persistent: true });
  await manager.pauseResume.pause(id, { force: false });
  await readAll(await start(manager, id, "echo later >note"));
  isBroken = true;
  await expect(
    operation === "rollback"
      ? manager.rollbacks.rollback(id, { checkpoint: 1, force: false })
      : manager.forks.fork(id, { count: 1, force: false }, { keyId: "test" }),
  ).rejects.toThrow("no space left on device");
  expect(manager.get(id).state).toBe("paused");
  const left = (await manager.engine.checkpoints(id)).at(-1)?.n;
  expect(left).toBeGreaterThan(1);
  await expect
    .poll(() => SandboxHandle.read(sandboxStores, id), soon)
    .toMatchObject({ state: "paused", checkpoint: { n: left } });
  await expect.poll(() => manager.persistent.has(id), soon).toBe(false);
  isBroken = false;
  await manager.access.acquire(id, new AbortController().signal);
  expect((await readAll(await start(manager, id, "cat note"))).text).toBe("later\n");
});

describe("a rollback on a server that fetched the sandbox", () => {
  const listOf = async (api: ApiClient, at: string): Promise<ListedCheckpoint[]> =>
    (await api.ask<{ checkpoints: ListedCheckpoint[] }>("GET", `${at}/checkpoints`)).body.checkpoints;

  /**
   * Pauses a sandbox on A three times, each time with a new word in `note` and one more line read, and moves it to B.
   */
  async function wander(): Promise<{ at: string; path: string; listed: ListedCheckpoint[] }> {
    const [atA, atB] = servers.clients;
    const { sandbox } = await atA.create({ driver: "gvisor", persistent: true });
    const at = `/sandboxes/${sandbox.id}`;
    const { id: commandId } = await atA.start(sandbox.id, { shell: counting, stdin: true });
    const path = `${at}/commands/${commandId}`;
    for (const [times, word] of ["one", "two", "three"].entries()) {
      await atA.fetch("PUT", `${at}/files?path=/home/user/note`, { body: word });
      await writeLine(atA, path, 2 * times, "a");
      expect((await atA.ask("POST", `${at}/pause`, {})).status).toBe(200);
    }
    const listed = await listOf(atA, at);
    expect((await atB.run(sandbox.id, { shell: "cat note" })).stdout).toBe("three");
    return { at, path, listed };
  }

  test("works to every listed checkpoint, with files, memory and commands", async () => {
    const [atA, atB] = servers.clients;
    const { at, path, listed } = await wander();
    expect(listed.map(({ n, local, stored }) => [n, local, stored])).toEqual([
      [1, true, true],
      [2, true, true],
      [3, true, true],
    ]);
    expect(await listOf(atB, at)).toEqual(listed.map((info) => ({ ...info, local: info.n === 3 })));

    const back = await atB.ask<SandboxRolledBack>("POST", `${at}/rollback`, { checkpoint: 1 });
    expect(back.body).toMatchObject({ checkpoint: 1, sandbox: { state: "running", server: { url: servers.b.url } } });
    const { phases, totalMs, left = 0 } = back.body;
    expect(Object.keys(phases)).toEqual(
      expect.arrayContaining(["download", "verify", "save", "restore", "firstAnswer"]),
    );
    expect(Object.values(phases).reduce((sum, ms) => sum + ms, 0)).toBeCloseTo(totalMs, 3);
    expect(await (await atB.fetch("GET", `${at}/files?path=/home/user/note`)).text()).toBe("one");
    expect((await atB.ask<CommandInfo>("GET", path)).body).toMatchObject({ state: "running", stdoutBytes: 4 });
    await writeLine(atB, path, 2, "b");
    const after = await listOf(atB, at);
    expect(after.map(({ n, local }) => [n, local])).toEqual([
      [1, true],
      [2, false],
      [3, true],
      [left, true],
    ]);
    const none = await atB.ask("POST", `${at}/rollback`, { checkpoint: 99 });
    expect(none.body.error).toMatchObject({ code: "not_found", suggestion: `It has 1, 2, 3, ${left}.` });
    // The state that was replaced on B can be restored on A.
    const undone = await atA.ask<SandboxRolledBack>("POST", `${at}/rollback`, { checkpoint: left });
    expect(undone.body).toMatchObject({ checkpoint: left, sandbox: { server: { url: servers.a.url } } });
    expect(await (await atA.fetch("GET", `${at}/files?path=/home/user/note`)).text()).toBe("three");
    expect((await atA.ask<CommandInfo>("GET", path)).body).toMatchObject({ state: "running", stdoutBytes: 12 });
    await atB.fetch("DELETE", `${path}/stdin`);
    const end = await atB.ask<CommandInfo>("GET", `${path}/wait?timeoutMs=60000`);
    expect(end.body).toMatchObject({ state: "exited", exitCode: 7, stdoutBytes: 12 });
    await atB.ask("DELETE", at);
  });

  test("to a damaged checkpoint, or one that this machine cannot run, is refused", async () => {
    const [, atB] = servers.clients;
    const { at, path } = await wander();
    const store = await FileObjectStore.open(servers.store.flags()[1] ?? "");
    onTestFinished(() => store.close());
    const parts: string[] = [];
    for await (const { key } of store.list(`checkpoints/${at.slice(-20)}/`)) parts.push(key);
    const partOf = (n: number, kind: string): string => parts.find((key) => key.includes(`/${n}/${kind}/`)) ?? "none";
    await store.put(partOf(1, "memory"), Buffer.from("damaged"));
    await store.remove(partOf(2, "owner"));
    for (const [checkpoint, part] of [
      [1, "memory/checkpoint.img"],
      [2, "owner"],
    ] as const) {
      const refused = await atB.ask("POST", `${at}/rollback`, { checkpoint });
      expect(refused.body.error).toMatchObject({ code: "unrestorable", details: { checkpoint, part } });
    }
    const key = manifestKey(SandboxId.parse(at.slice(-20)), 1);
    const stored = StoredCheckpoint.parse(JSON.parse((await store.get(key))?.data.toString() ?? ""));
    stored.manifest.runtime.version = "release-1";
    await store.put(key, Buffer.from(JSON.stringify(stored)));
    const unfit = await atB.ask("POST", `${at}/rollback`, { checkpoint: 1 });
    expect(unfit.body.error).toMatchObject({
      code: "unrestorable",
      message: expect.stringContaining("it was saved by runsc release-1"),
      suggestion: "Ask a server that has what it needs, or roll back to another checkpoint.",
    });
    expect((await atB.ask<SandboxInfo>("GET", at)).body.state).toBe("running");
    expect((await atB.ask<CommandInfo>("GET", path)).body.rollbacks).toBeUndefined();
    await writeLine(atB, path, 6, "b");
    expect((await listOf(atB, at)).map(({ n, local }) => [n, local])).toEqual([
      [1, false],
      [2, false],
      [3, true],
    ]);
    await atB.ask("DELETE", at);
  });
});
