// @module-tag gvisor
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { CommandInfo, SandboxInfo, SandboxRolledBack } from "@atoll/protocol";
import { createLog } from "@atoll/server";
import { FileObjectStore, Leases } from "@atoll/storage";
import { expect, onTestFinished, test } from "vitest";
import { CheckpointArchive } from "../../packages/server/src/persistence/checkpoint-archive.ts";
import { SandboxHandle } from "../../packages/server/src/persistence/sandbox-handle.ts";
import type { ApiClient } from "../support/api-client.ts";
import { ServerPair } from "../support/server-pair.ts";
import { sharedDirectory } from "../support/shared-store.ts";
import { createIn, openTestManager, readAll, start } from "../support/test-manager.ts";
import { makeDataDir } from "../support/test-root.ts";

const soon = { timeout: 60_000, interval: 50 };
const counting = "i=0; while read line; do i=$((i+1)); echo $line $i; done; exit 7";

const servers = new ServerPair(sharedDirectory);

test("a sandbox that lasts is rolled back where it is, and goes on so on another server", async () => {
  const [atA, atB] = servers.clients;
  const { sandbox } = await atA.create({ driver: "gvisor", persistent: true });
  const at = `/sandboxes/${sandbox.id}`;
  const command = await atA.start(sandbox.id, { shell: counting, stdin: true });
  const path = `${at}/commands/${command.id}`;
  const write = async (api: ApiClient, offset: number, line: string): Promise<void> => {
    expect((await api.fetch("POST", `${path}/stdin?offset=${offset}`, { body: `${line}\n` })).status).toBe(200);
    await expect
      .poll(async () => (await api.ask<CommandInfo>("GET", path)).body.stdoutBytes, soon)
      .toBeGreaterThanOrEqual(2 * offset + 4);
  };
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

test.for(["rollback", "fork"] as const)("what a %s that fails has paused is stored", async (operation) => {
  const directory = await makeDataDir();
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const kept = await FileObjectStore.open(directory);
  onTestFinished(() => kept.close());
  const self = { id: "a", url: "test://a" };
  const home = { metadataStore: kept, checkpointStore: kept, leases: new Leases({ store: kept, self }) };
  const dataDir = await makeDataDir();
  let isBroken = false;
  const host = await openTestManager({
    dataDir,
    engineOptions: {
      atStep: (step) => {
        if (isBroken && step === "resume: verified") throw new Error("no space left on device");
      },
    },
    persistence: {
      home,
      self: () => self,
      wasSelf: () => false,
      openArchive: (engine) =>
        CheckpointArchive.open({
          store: kept,
          engine,
          scratchDir: join(dataDir, "transfers"),
          log: createLog("error"),
        }),
    },
  });
  onTestFinished(() => host.dispose());
  const { manager } = host;
  const id = await createIn(manager, { driver: "gvisor", persistent: true });
  await manager.sleep.pause(id, { force: false });
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
    .poll(() => SandboxHandle.read(home, id), soon)
    .toMatchObject({ state: "paused", checkpoint: { n: left } });
  await expect.poll(() => manager.lasting.has(id), soon).toBe(false);
  isBroken = false;
  await manager.access.enter(id, new AbortController().signal);
  expect((await readAll(await start(manager, id, "cat note"))).text).toBe("later\n");
});
