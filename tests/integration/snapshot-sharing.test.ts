import { createHash } from "node:crypto";
import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { SnapshotInfo, SandboxId, SnapshotName, TemplateName, type KeyCreated } from "@atoll/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { writeHeader } from "../../packages/server/src/snapshots/snapshot-file.ts";
import { ApiClient } from "../support/api-client.ts";
import { runAtoll } from "../support/atoll-command.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

const deadline = { timeout: 180_000 };
let here: TestServer;
let there: TestServer;
let api: ApiClient;

beforeAll(async () => {
  // Each server has its own snapshots; persistent sandboxes are shared.
  here = await startTestServer();
  const shared = join(here.dataDir, "store");
  there = await startTestServer({ flags: ["--metadata-store", shared, "--checkpoint-store", shared] });
  api = new ApiClient(here.url, here.key);
}, 120_000);

afterAll(async () => {
  await there?.dispose();
  await here?.dispose();
});

/** Runs a command that must succeed without an error message, and returns its output. */
async function atoll(server: TestServer, ...words: string[]): Promise<string> {
  const { exitCode, stdout, stderr } = await runAtoll(server, words);
  expect({ words, exitCode, stderr }).toEqual({ words, exitCode: 0, stderr: "" });
  return stdout.trim();
}

test("a sandbox starts with a snapshot of another server that was exported and imported", deadline, async () => {
  const { sandbox } = await api.create();
  await api.run(sandbox.id, { shell: "echo from here >note; ln note twin; rm /etc/hosts", user: "root" });
  const file = join(here.dataDir, "work.atoll");
  expect(await atoll(here, "snapshot", "create", sandbox.id, "work")).toBe("work");
  expect(await atoll(here, "snapshot", "ls")).toMatch(/^work\tadmin\/work\tno\thost\t\S+\t\d+$/);
  expect(await atoll(here, "snapshot", "export", "work", file)).toBe(file);
  expect(await atoll(there, "snapshot", "import", "again", file)).toBe("again");
  const [first, second] = await Promise.all([
    atoll(here, "snapshot", "show", "--json", "work"),
    atoll(there, "snapshot", "show", "--json", "again"),
  ]).then((texts) => texts.map((text) => SnapshotInfo.parse(JSON.parse(text))));
  expect(second?.sha256).toBe(first?.sha256);
  const id = await atoll(there, "create", "--driver", "local", "--snapshot", "again");
  const { stdout } = await new ApiClient(there.url, there.key).run(SandboxId.parse(id), {
    shell: "cd ~root; cat note; stat -c %h twin; ls /etc/hosts 2>/dev/null",
    user: "root",
  });
  expect(stdout).toBe("from here\n2\n");
  expect(await atoll(there, "snapshot", "rm", "again")).toBe("again");
  expect(await atoll(here, "snapshot", "show", "work")).toContain(sandbox.id);
  await api.ask("DELETE", `/sandboxes/${sandbox.id}`);
});

test(
  "a paused sandbox stays paused while a snapshot of it is taken, and a new sandbox has its files",
  { ...deadline, tags: "gvisor" },
  async () => {
    const { sandbox } = await api.create({ driver: "gvisor" });
    await api.run(sandbox.id, { shell: "echo before >note" });
    await api.ask("POST", `/sandboxes/${sandbox.id}/pause`, {});
    const taken = await api.ask("POST", `/sandboxes/${sandbox.id}/snapshots`, { name: "asleep" });
    expect(taken.status).toBe(201);
    expect((await api.ask("GET", `/sandboxes/${sandbox.id}`)).body).toMatchObject({ state: "paused" });
    const copy = await api.create({ driver: "gvisor", snapshot: "asleep" });
    expect((await api.run(copy.sandbox.id, { shell: "cat note" })).stdout).toBe("before\n");
    await Promise.all([sandbox, copy.sandbox].map(({ id }) => api.ask("DELETE", `/sandboxes/${id}`)));
  },
);

test(
  "a persistent sandbox starts with a snapshot, and moves with its files to another server",
  { ...deadline, tags: "gvisor" },
  async () => {
    const elsewhere = new ApiClient(there.url, there.key);
    const { sandbox: builder } = await api.create();
    await api.run(builder.id, { shell: "echo built >/srv/tool", user: "root" });
    await api.ask("POST", `/sandboxes/${builder.id}/snapshots`, { name: "persistent" });
    const { sandbox } = await api.create({ driver: "gvisor", persistent: true, snapshot: "persistent" });
    await api.run(sandbox.id, { shell: "echo more >>/srv/tool", user: "root" });
    await api.ask("POST", `/sandboxes/${sandbox.id}/pause`, {});
    const taken = await elsewhere.ask("POST", `/sandboxes/${sandbox.id}/snapshots`, { name: "moved" });
    expect(taken.status).toBe(201);
    expect((await elsewhere.run(sandbox.id, { shell: "cat /srv/tool" })).stdout).toBe("built\nmore\n");
    const copy = await elsewhere.create({ snapshot: "moved" });
    expect((await elsewhere.run(copy.sandbox.id, { shell: "cat /srv/tool" })).stdout).toBe("built\nmore\n");
    await elsewhere.ask("DELETE", `/sandboxes/${sandbox.id}`);
    await elsewhere.ask("DELETE", `/sandboxes/${copy.sandbox.id}`);
    await api.ask("DELETE", `/sandboxes/${builder.id}`);
  },
);

async function makeKey(name: string): Promise<ApiClient> {
  return api.as((await api.ask<KeyCreated>("POST", "/keys", { name, policy: { drivers: ["local"] } })).body.secret);
}

test(
  "a name gives no access to another key's snapshot, and a shared one is found by its reference",
  deadline,
  async () => {
    const [one, two] = [await makeKey("one"), await makeKey("two")];
    const made = await Promise.all(
      [one, two].map(async (client) => {
        const { sandbox } = await client.create();
        await client.run(sandbox.id, { shell: `echo ${sandbox.id} >whose` });
        const taken = await client.ask<SnapshotInfo>("POST", `/sandboxes/${sandbox.id}/snapshots`, { name: "env" });
        expect(taken.status).toBe(201);
        return { client, sandbox, ref: taken.body.ref };
      }),
    );
    const [mine, theirs] = made as [(typeof made)[0], (typeof made)[0]];
    const whose = async (client: ApiClient, snapshot: string): Promise<string> => {
      const { sandbox } = await client.create({ snapshot });
      const { stdout } = await client.run(sandbox.id, { shell: "cat whose" });
      await client.ask("DELETE", `/sandboxes/${sandbox.id}`);
      return stdout.trim();
    };
    expect([await whose(one, "env"), await whose(two, "env")]).toEqual([mine.sandbox.id, theirs.sandbox.id]);
    const path = `/snapshots/${encodeURIComponent(theirs.ref)}`;
    const asked = await one.ask("POST", "/sandboxes", { driver: "local", snapshot: theirs.ref });
    expect([asked.body.error?.code, (await one.ask("GET", path)).status]).toEqual(["not_found", 404]);
    expect((await one.ask("PATCH", path, { shared: true })).status).toBe(404);
    expect((await two.ask("PATCH", "/snapshots/env", { shared: true })).body).toMatchObject({ shared: true });
    expect(await whose(one, theirs.ref)).toBe(theirs.sandbox.id);
    expect((await one.fetch("GET", `${path}/file`)).headers.get("content-disposition")).toContain('"env.atoll"');
    expect((await one.ask("DELETE", path)).body.error?.code).toBe("permission_denied");
    expect(await atoll(here, "snapshot", "unshare", theirs.ref)).toBe(theirs.ref);
    expect((await one.ask("GET", path)).status).toBe(404);
    expect(await atoll(here, "snapshot", "rm", theirs.ref)).toBe(theirs.ref);
    for (const { client, sandbox } of made) await client.ask("DELETE", `/sandboxes/${sandbox.id}`);
  },
);

test("a key that sees only its own snapshots gets no others, and only its own events", deadline, async () => {
  const [one, two] = [await makeKey("one"), await makeKey("two")];
  const { sandbox } = await one.create();
  await one.ask("POST", `/sandboxes/${sandbox.id}/snapshots`, { name: "private" });
  const names = async (client: ApiClient): Promise<string[]> =>
    (await client.ask<{ snapshots: SnapshotInfo[] }>("GET", "/snapshots")).body.snapshots.map(({ name }) => name);
  expect([await names(one), await names(two)]).toEqual([["private"], []]);
  expect(await names(api)).toContain("private");
  for (const [method, path] of [
    ["GET", "/snapshots/private"],
    ["GET", "/snapshots/private/file"],
    ["DELETE", "/snapshots/private"],
  ] as const) {
    expect((await two.ask(method, path)).body.error?.code).toBe("not_found");
  }
  const created = await two.ask("POST", "/sandboxes", { driver: "local", snapshot: "private" });
  expect(created.body.error?.code).toBe("not_found");
  expect((await two.ask("POST", `/sandboxes/${sandbox.id}/snapshots`, { name: "x" })).body.error?.code).toBe(
    "not_found",
  );
  expect((await one.ask("DELETE", "/snapshots/private")).status).toBe(204);
  await one.ask("DELETE", `/sandboxes/${sandbox.id}`);
});

describe("a malicious file", () => {
  const sealed = (archive: Buffer, files: { sizeBytes?: number } = {}): Buffer => {
    const seal = { sizeBytes: archive.byteLength, sha256: createHash("sha256").update(archive).digest("hex") };
    const header = writeHeader({
      version: 1,
      name: SnapshotName.parse("evil"),
      template: TemplateName.parse("host"),
      base: TemplateName.parse("host"),
      sandboxId: SandboxId.parse("e".repeat(20)),
      createdAtMs: 0,
      files: { ...seal, ...files, trees: 2 },
      stored: { ...seal, encoding: "plain" },
    });
    return Buffer.concat([header, archive]);
  };
  const tag = (letter: string, ...parts: Buffer[]): Buffer => Buffer.concat([Buffer.from(letter), ...parts]);
  const name = (text: string): Buffer => Buffer.concat([Buffer.from([text.length]), Buffer.from(text)]);

  test.for<[what: string, file: Buffer]>([
    ["is no archive", sealed(Buffer.from("#!/bin/sh\nreboot\n"))],
    ["is an archive that ends at once", sealed(Buffer.from("atollpk1"))],
    ["has a name that leads out", sealed(Buffer.concat([Buffer.from("atollpk1"), tag("T"), tag("D", name(".."))]))],
    ["declares other files than it has", sealed(Buffer.from("atollpk1Z"), { sizeBytes: 5 })],
    ["declares a huge size in its header", Buffer.from(`atoll-snapshot 1 99999 ${"0".repeat(64)}\n`)],
  ])("that %s is refused, and nothing is left of it", deadline, async ([, file]) => {
    const answer = await api.fetch("PUT", "/snapshots/evil/file", { body: file });
    expect([answer.status, ((await answer.json()) as { error: { code: string } }).error.code]).toEqual([
      400,
      "invalid_argument",
    ]);
    expect((await api.ask("GET", "/snapshots/evil")).status).toBe(404);
    for (const dir of ["snapshots", "copies"]) {
      expect(await readdir(join(here.dataDir, dir)).catch(() => [])).toEqual([]);
    }
  });

  test("that differs in one byte is refused", deadline, async () => {
    const { sandbox } = await api.create();
    await api.ask("POST", `/sandboxes/${sandbox.id}/snapshots`, { name: "sound" });
    const path = join(here.dataDir, "sound.atoll");
    const file = Buffer.from(await (await api.fetch("GET", "/snapshots/sound/file")).arrayBuffer());
    file[file.byteLength - 1] = (file.at(-1) ?? 0) ^ 0xff;
    await writeFile(path, file);
    const { exitCode, stderr } = await runAtoll(here, ["snapshot", "import", "unsound", path]);
    expect([exitCode, stderr]).toEqual([1, expect.stringContaining("its bytes were changed")]);
    await api.ask("DELETE", `/sandboxes/${sandbox.id}`);
  });
});

test("a server that keeps no snapshots names the setting", deadline, async () => {
  await using without = await startTestServer({ flags: ["--snapshot-store", "none"] });
  const client = new ApiClient(without.url, without.key);
  const { body, status } = await client.ask("GET", "/snapshots");
  expect([status, body.error?.code, body.error?.details]).toEqual([501, "unsupported", { setting: "snapshotStore" }]);
});
