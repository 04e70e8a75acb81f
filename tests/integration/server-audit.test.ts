import { appendFile, cp, open, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { KeyCreated } from "@atoll/protocol";
import { Atoll } from "@atoll/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { RunningAtoll, type CommandOutcome } from "../support/atoll-command.ts";
import { makeDataDir } from "../support/test-root.ts";
import { startTestServerProcess, type TestServerProcess } from "../support/test-server.ts";

let dataDir: string;
let server: TestServerProcess;
let key: string;
let atoll: Atoll;
let api: ApiClient;

async function start(): Promise<void> {
  server = await startTestServerProcess({ dataDir });
  key = server.key === "" ? key : server.key;
  atoll = new Atoll({ baseUrl: server.url, apiKey: key });
  api = new ApiClient(server.url, key);
}

beforeAll(async () => {
  dataDir = await makeDataDir();
  await start();
});
afterAll(async () => {
  atoll.close();
  await server.dispose();
  await rm(dataDir, { recursive: true, force: true });
});

const auditDir = () => join(dataDir, "audit");
const logFile = () => join(auditDir(), "audit.jsonl");

async function atollCommand(...words: string[]): Promise<CommandOutcome> {
  await using running = new RunningAtoll({ url: server.url, key }, words);
  return await running.ended;
}

test("each change that was answered is in the chain after kill -9, and the chain goes on", async () => {
  const acknowledged: string[] = [];
  const flood = Promise.allSettled(
    [1, 2, 3].map(async (writer) => {
      for (let index = 0; ; index += 1) {
        const { body } = await api.ask<KeyCreated>("POST", "/keys", { name: `key-${writer}-${index}` });
        acknowledged.push(body.key.id);
      }
    }),
  );
  await expect.poll(() => acknowledged.length).toBeGreaterThan(60);
  await server.signal("SIGKILL");
  atoll.close();
  await flood;
  const known = acknowledged.slice();
  // A write that the kernel had not finished would look like this.
  await appendFile(logFile(), '{"seq":999,"at":"2026-01-');
  const torn = await atollCommand("audit", "verify", "--dir", auditDir(), "--json");
  expect(torn.exitCode).toBe(1);
  expect(JSON.parse(torn.stdout)).toMatchObject({ isAuthenticated: true, problems: [{ kind: "torn" }] });
  await start();
  const { isIntact, repairs, problems } = await atoll.audit.verify();
  expect({ isIntact, problems }).toEqual({ isIntact: true, problems: [] });
  expect(repairs).toEqual([expect.objectContaining({ message: expect.stringContaining("torn") as string })]);
  const text = await readFile(logFile(), "utf8");
  expect(known.filter((id) => !text.includes(id))).toEqual([]);
});

test("only an admin key reads the log, and the last lines are followed as they come", async () => {
  const { secret } = await atoll.keys.create({ name: "reader", verbs: ["read"] });
  const reader = api.as(secret);
  for (const path of ["/audit", "/audit/tail", "/audit/head", "/audit/verify"]) {
    expect((await reader.ask("GET", path)).status).toBe(403);
  }
  const refused = await atoll.audit.query({ result: "permission_denied", what: "verifyAudit" });
  expect(refused.lines).toHaveLength(1);
  const seen: string[] = [];
  for await (const message of atoll.audit.tail({ lines: 1, follow: true })) {
    if (message.type !== "line") continue;
    seen.push(message.line.what);
    if (seen.length === 1) await atoll.keys.create({ name: "followed" });
    if (seen.includes("createKey")) break;
  }
  expect(seen).toContain("createKey");
});

test("the command shows, finds and checks lines, and says where they were changed", async () => {
  const head = (await atollCommand("audit", "head")).stdout.trim();
  await atoll.keys.create({ name: "later" });
  expect(await atollCommand("audit", "verify", "--head", head)).toMatchObject({ exitCode: 0 });
  const found = await atollCommand("audit", "query", "--what", "createKey", "--since", "1h", "--limit", "2", "--json");
  expect(JSON.parse(found.stdout)).toMatchObject({ hasMore: true, lines: [{ what: "createKey" }, { result: "ok" }] });
  expect((await atollCommand("audit", "tail", "-n", "3")).stdout.split("\n")).toHaveLength(4);
  expect(await atollCommand("audit", "verify", "--head", "nonsense")).toMatchObject({ exitCode: 2 });

  const copy = await makeDataDir();
  await cp(auditDir(), join(copy, "audit"), { recursive: true });
  const dir = join(copy, "audit");
  const secret = join(dataDir, "secret");
  expect(await atollCommand("audit", "verify", "--dir", dir, "--secret", secret)).toMatchObject({ exitCode: 0 });
  const lines = (await readFile(join(dir, "audit.jsonl"), "utf8")).split("\n");
  await writeFile(join(dir, "audit.jsonl"), lines.toSpliced(4, 1).join("\n"));
  const cut = await atollCommand("audit", "verify", "--dir", dir);
  expect(cut.exitCode).toBe(1);
  expect(cut.stdout).toContain("audit.jsonl:5  missing");
  expect(cut.stderr).toContain("--secret");
  await rm(copy, { recursive: true });
});

test("a log that was cut while the server runs is found out by it", async () => {
  const [first = "", second = "", third = ""] = (await readFile(logFile(), "utf8")).split("\n");
  const at = Buffer.byteLength(`${first}\n${second}\n`) + third.indexOf("createKey");
  await using file = await open(logFile(), "r+");
  await file.write("removeKey", at);
  const found = await atoll.audit.verify();
  await file.write("createKey", at);
  expect(found).toMatchObject({ isIntact: false, problems: [{ kind: "changed", file: "audit.jsonl", line: 3 }] });
});
