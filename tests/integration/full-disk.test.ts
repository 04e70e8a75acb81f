import { execFile } from "node:child_process";
import { mkdir, open, rm, statfs } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import type { CommandInfo, CommandResult } from "@atoll/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { makeDataDir } from "../support/test-root.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

const run = promisify(execFile);
let root: string;
let disk: string;
let server: TestServer;
let api: ApiClient;

beforeAll(async () => {
  root = await makeDataDir();
  disk = join(root, "disk");
  await mkdir(disk);
  await run("mount", ["-t", "tmpfs", "-o", "size=64m,mode=700", "tmpfs", disk]);
  server = await startTestServer({ dataDir: join(disk, "data"), flags: ["--log-level", "silent"] });
  api = new ApiClient(server.url, server.key);
});

afterAll(async () => {
  await server?.dispose();
  await run("umount", [disk]);
  await rm(root, { recursive: true });
});

/** Fills the disk until no byte is free, or only `leavingBytes`. */
async function fillDisk({ leavingBytes = 0 } = {}): Promise<void> {
  const file = await open(join(disk, "filler"), "w");
  try {
    for (let size = 1024 * 1024; size >= 1;) {
      try {
        await file.appendFile(Buffer.alloc(size));
      } catch (error) {
        expect(error).toMatchObject({ code: "ENOSPC" });
        size = Math.floor(size / 2);
      }
    }
    if (leavingBytes > 0) await file.truncate((await file.stat()).size - leavingBytes);
  } finally {
    await file.close();
  }
}

async function usedBytes(): Promise<number> {
  const { blocks, bfree, bsize } = await statfs(disk);
  return (blocks - bfree) * bsize;
}

const emptyDisk = (): Promise<void> => rm(join(disk, "filler"));

test("a full disk refuses new work with no_space, running processes wait, and go on when there is room", async () => {
  const { sandbox } = await api.create();
  const path = `/sandboxes/${sandbox.id}`;
  const before = await api.start(sandbox.id, { shell: "read go; seq 1 2000; exit 5", stdin: true });
  await fillDisk();

  const created = await api.ask("POST", "/sandboxes", { driver: "local" });
  expect([created.status, created.body.error?.code]).toEqual([507, "no_space"]);
  const started = await api.ask("POST", `${path}/commands`, { argv: ["true"] });
  expect([started.status, started.body.error?.code]).toEqual([507, "no_space"]);
  const once = await api.ask("POST", "/run", { driver: "local", argv: ["true"] });
  expect(once.body.error?.code).toBe("no_space");
  const written = await api.fetch("PUT", `${path}/files?path=f`, { body: "x".repeat(100_000) });
  expect(((await written.json()) as { error: { code: string } }).error.code).toBe("no_space");
  expect((await api.ask("GET", path)).status).toBe(200);
  expect((await api.ask("GET", "/readyz")).status).toBe(200);

  await emptyDisk();
  expect((await api.fetch("POST", `${path}/commands/${before.id}/stdin`, { body: "go\n" })).status).toBe(200);
  expect((await api.ask("GET", `${path}/commands/${before.id}/wait`)).body).toMatchObject({ exitCode: 5 });
  const after = await api.ask<CommandResult>("POST", "/run", { driver: "local", argv: ["echo", "hi"] });
  expect(after.body.stdout).toBe("hi\n");
  expect((await api.fetch("PUT", `${path}/files?path=f`, { body: "x" })).status).toBe(200);
  expect((await api.run(sandbox.id, { shell: "cat f" })).stdout).toBe("x");
});

test("output for which the disk has no room waits, and is complete in the end", async () => {
  const { sandbox } = await api.create();
  const path = `/sandboxes/${sandbox.id}`;
  const command = await api.start(sandbox.id, { shell: "read go; seq 1 20000; exit 5", stdin: true });
  const stdin = (body: string): Promise<Response> =>
    api.fetch("POST", `${path}/commands/${command.id}/stdin`, { body });
  await stdin("g");
  await fillDisk();
  expect((await stdin("o\n")).status).toBe(200);
  expect((await api.ask("GET", `${path}/commands/${command.id}/wait?timeoutMs=500`)).body).toMatchObject({
    state: "running",
  });
  await emptyDisk();
  const end = await api.ask("GET", `${path}/commands/${command.id}/wait`);
  const lines = Array.from({ length: 20_000 }, (_, index) => `${index + 1}\n`).join("");
  expect(end.body).toMatchObject({ state: "exited", exitCode: 5, stdoutBytes: lines.length });
});

test("a sandbox can be killed on a full disk, and frees space", async () => {
  const { sandbox } = await api.create();
  await api.fetch("PUT", `/sandboxes/${sandbox.id}/files?path=big`, { body: Buffer.alloc(4 * 1024 * 1024) });
  await fillDisk();
  expect((await api.ask("DELETE", `/sandboxes/${sandbox.id}`)).body).toEqual({ killed: true });
  const next = await api.create();
  await api.ask("DELETE", `/sandboxes/${next.sandbox.id}`);
  await emptyDisk();
});

test("a persistent sandbox can be killed on a full disk", { tags: "gvisor" }, async () => {
  const { sandbox } = await api.create({ driver: "gvisor", persistent: true });
  await api.fetch("PUT", `/sandboxes/${sandbox.id}/files?path=big`, { body: Buffer.alloc(4 * 1024 * 1024) });
  await fillDisk();
  expect((await api.ask("DELETE", `/sandboxes/${sandbox.id}`)).body).toEqual({ killed: true });
  expect((await api.ask("GET", `/sandboxes/${sandbox.id}`)).status).toBe(404);
  await emptyDisk();
});

test("a sandbox whose memory does not fit on the disk is not paused, and runs on", { tags: "gvisor" }, async () => {
  const { sandbox } = await api.create({ driver: "gvisor" });
  const path = `/sandboxes/${sandbox.id}`;
  await api.run(sandbox.id, { shell: "head -c 8M /dev/urandom >/dev/shm/memory" });
  const { stdout: digest } = await api.run(sandbox.id, { shell: "sha256sum /dev/shm/memory" });
  const waiting = await api.start(sandbox.id, { shell: "read go; sha256sum /dev/shm/memory; exit 5", stdin: true });
  const holding = await api.start(sandbox.id, { shell: "exec 7<>gone; rm gone; echo held; read line", stdin: true });
  const holds = async (): Promise<unknown> =>
    (await api.ask<CommandInfo>("GET", `${path}/commands/${holding.id}`)).body;
  await expect.poll(holds).toMatchObject({ stdoutBytes: 5 });
  await fillDisk({ leavingBytes: 2 * 1024 * 1024 });
  const refused = await api.ask("POST", `${path}/pause`, { force: true });
  expect([refused.status, refused.body.error?.code]).toEqual([507, "no_space"]);
  expect((await api.ask("GET", path)).body).toMatchObject({ state: "running" });
  // No process was ended for the pause.
  expect(await holds()).toMatchObject({ state: "running" });
  await emptyDisk();
  expect((await api.ask("POST", `${path}/pause`, { force: true })).body).toMatchObject({ ended: [{}] });
  expect((await api.fetch("POST", `${path}/commands/${waiting.id}/stdin`, { body: "go\n" })).status).toBe(200);
  expect((await api.ask("GET", `${path}/commands/${waiting.id}/wait`)).body).toMatchObject({ exitCode: 5 });
  expect((await api.run(sandbox.id, { shell: "sha256sum /dev/shm/memory" })).stdout).toBe(digest);
});

test("files that do not fit on the disk are not saved, and their sandbox runs on", async () => {
  const { sandbox } = await api.create();
  const path = `/sandboxes/${sandbox.id}`;
  await api.run(sandbox.id, { shell: "head -c 8M /dev/urandom >large" });
  const waiting = await api.start(sandbox.id, { shell: "read go; exit 5", stdin: true });
  const before = await usedBytes();
  for (const leavingBytes of [2 * 1024 * 1024, 12 * 1024 * 1024]) {
    await fillDisk({ leavingBytes });
    const refused = await api.ask("POST", `${path}/snapshots`, { name: "large" });
    expect([refused.status, refused.body.error?.code]).toEqual([507, "no_space"]);
    await emptyDisk();
    // The incomplete copy is removed; otherwise the next round would have less room.
    await expect.poll(usedBytes).toBeLessThan(before + 1024 * 1024);
  }
  expect((await api.ask("GET", "/snapshots/large")).status).toBe(404);
  expect((await api.ask("POST", `${path}/snapshots`, { name: "large" })).status).toBe(201);
  await expect.poll(usedBytes).toBeLessThan(before + 10 * 1024 * 1024);
  await fillDisk({ leavingBytes: 12 * 1024 * 1024 });
  const created = await api.ask("POST", "/sandboxes", { driver: "local", snapshot: "large" });
  expect([created.status, created.body.error?.code]).toEqual([507, "no_space"]);
  await emptyDisk();
  expect((await api.fetch("POST", `${path}/commands/${waiting.id}/stdin`, { body: "go\n" })).status).toBe(200);
  expect((await api.ask("GET", `${path}/commands/${waiting.id}/wait`)).body).toMatchObject({ exitCode: 5 });
});
