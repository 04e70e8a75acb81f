import { randomBytes } from "node:crypto";
import { appendFile, copyFile, mkdtemp, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { AuditHead } from "@atoll/protocol";
import { AuditQuery } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { AuditLog } from "../../src/audit/audit-log.ts";
import { chainLine } from "../../src/audit/chain.ts";
import { queryLog } from "../../src/audit/query-log.ts";
import { verifyLog } from "../../src/audit/verify-log.ts";

const key = randomBytes(32);
let dir: string;
let files: string[];
let head: AuditHead;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-audit-"));
});
afterEach(async () => {
  await rm(dir, { recursive: true, force: true });
});

/** Writes a log of several files; the line `action 7` is the eighth, since the first says that the chain begins. */
async function writeLog(options: { files?: number; actions?: number } = {}): Promise<void> {
  const log = new AuditLog(dir, { key, fileBytes: 2_000, ...options });
  for (let index = 1; index <= (options.actions ?? 30); index += 1) act(log, index);
  ({ head } = log);
  log.close();
  const names = (await readdir(dir)).filter((name) => name.endsWith(".jsonl"));
  files = [...names.filter((name) => name !== "audit.jsonl").toSorted(), "audit.jsonl"];
}

function act(log: AuditLog, index: number): void {
  log.write({ who: "key", what: `action ${index}`, result: "ok", details: { index } });
}

const verify = (more: object = {}) => verifyLog(dir, { key, ...more });
const problems = async (more: object = {}) => (await verify(more)).problems;
const pathOf = (index: number) => join(dir, files[index] ?? "");
const linesOf = async (index: number) => (await readFile(pathOf(index), "utf8")).split("\n").slice(0, -1);
const store = (index: number, lines: string[]) => writeFile(pathOf(index), lines.map((line) => `${line}\n`).join(""));

describe("a log of several files", () => {
  beforeEach(() => writeLog());

  test("is intact, and says where it ends", async () => {
    expect(files.length).toBeGreaterThan(3);
    const found = await verify();
    expect(found).toMatchObject({ isIntact: true, isAuthenticated: true, lines: 31, firstSeq: 1, problems: [], head });
    expect(await verify({ expected: head })).toMatchObject({ isIntact: true });
    expect(await verifyLog(dir)).toMatchObject({ isIntact: true, isAuthenticated: false });
  });

  test("that was edited names the line, also where the hash was made to fit", async () => {
    const lines = await linesOf(1);
    await store(1, lines.with(2, (lines[2] ?? "").replace("action", "actiom")));
    const problem = { kind: "changed", file: files[1], line: 3 };
    expect(await problems()).toEqual([expect.objectContaining(problem)]);
    expect(await verifyLog(dir)).toMatchObject({ problems: [problem] });
    const { seq, prev } = JSON.parse(lines[2] ?? "") as { seq: number; prev: string };
    const entry = { at: "2026-01-01T00:00:00Z", who: "key", what: "x", result: "ok" };
    const forged = chainLine(randomBytes(32), { seq: seq - 1, hash: prev }, entry);
    await store(1, lines.with(2, forged.text));
    expect(await problems()).toMatchObject([problem, { kind: "changed", file: files[1], line: 4 }]);
  });

  test("that was edited in its last line of a file is found at that line", async () => {
    const lines = await linesOf(1);
    await store(1, [...lines.slice(0, -1), (lines.at(-1) ?? "").replace("action", "actiom")]);
    expect(await problems()).toMatchObject([{ kind: "changed", file: files[1], line: lines.length }]);
  });

  test("that lacks a line names where it was", async () => {
    const lines = await linesOf(1);
    await store(1, lines.toSpliced(1, 1));
    expect(await problems()).toMatchObject([{ kind: "missing", file: files[1], line: 2 }]);
  });

  test("that was cut at its end is found out by the record of its head", async () => {
    const lines = await linesOf(files.length - 1);
    await store(files.length - 1, lines.slice(0, -1));
    const problem = { kind: "missing", file: "audit.jsonl", line: lines.length };
    expect(await problems()).toMatchObject([problem]);
    await rm(pathOf(files.length - 1));
    expect((await problems()).map(({ kind }) => kind)).toEqual(["missing"]);
  });

  test("whose lines were swapped names the one in the wrong place", async () => {
    const lines = await linesOf(1);
    await store(1, [...lines.slice(0, 1), ...lines.slice(1, 3).toReversed(), ...lines.slice(3)]);
    expect(await problems()).toMatchObject([{ kind: "reordered", file: files[1], line: 3 }]);
  });

  test("with a line twice names the second", async () => {
    const lines = await linesOf(1);
    await store(1, [...lines, ...lines.slice(-1)]);
    expect(await problems()).toMatchObject([{ kind: "repeated", file: files[1], line: lines.length + 1 }]);
  });

  test("that lacks a file names the file after it", async () => {
    await rm(pathOf(1));
    const [problem, ...others] = await problems();
    expect(others).toEqual([]);
    expect(problem).toMatchObject({ kind: "missing", file: files[2], line: 1 });
    expect(problem?.message).toContain("file");
  });

  test("that lacks its first file is not a log that begins later", async () => {
    await rm(pathOf(0));
    expect(await problems()).toMatchObject([{ kind: "missing", file: files[1], line: 1 }]);
  });

  test("with two files swapped names the file in the wrong place", async () => {
    await rename(pathOf(0), join(dir, "kept"));
    await rename(pathOf(1), pathOf(0));
    await rename(join(dir, "kept"), pathOf(1));
    expect(await problems()).toMatchObject([{ kind: "reordered", file: files[1], line: 1 }]);
  });

  test("with a file of another log names it", async () => {
    const other = await mkdtemp(join(tmpdir(), "atoll-audit-"));
    const log = new AuditLog(other, { key: randomBytes(32) });
    for (let index = 1; index < 6; index += 1) act(log, index);
    log.close();
    await copyFile(join(other, "audit.jsonl"), pathOf(0));
    await rm(other, { recursive: true });
    expect((await problems()).at(0)).toMatchObject({ kind: "changed", file: files[0], line: 1 });
  });

  test("with a line or a file that no audit log wrote names them", async () => {
    await appendFile(pathOf(1), '{"at":"2026-01-01T00:00:00Z","who":"key","what":"kill","result":"ok"}\n');
    await writeFile(join(dir, "audit-000000000000001.jsonl"), '{"at":"","who":"x","what":"x","result":"ok"}\n');
    expect(await problems()).toMatchObject([
      { kind: "changed", file: files[1] },
      { kind: "unknown_file", file: "audit-000000000000001.jsonl" },
    ]);
  });

  test("whose head record is gone, garbage or forged is not trusted", async () => {
    const path = join(dir, "head.json");
    const record = await readFile(path, "utf8");
    await writeFile(path, record.replace(`"seq":${head.seq}`, `"seq":${head.seq - 1}`));
    expect(await problems()).toMatchObject([{ kind: "head", file: "head.json" }]);
    await writeFile(path, "garbage");
    expect(await problems()).toMatchObject([{ kind: "head", file: "head.json" }]);
    await rm(path);
    expect(await problems()).toMatchObject([{ kind: "head", file: "head.json" }]);
  });

  test("that was written again from its beginning does not have the head that was kept", async () => {
    await rm(dir, { recursive: true });
    const kept = head;
    await writeLog({ actions: 40 });
    expect(await verify()).toMatchObject({ isIntact: true });
    expect(await problems({ expected: kept })).toMatchObject([{ kind: "head", line: expect.any(Number) as number }]);
    expect(await problems({ expected: { ...kept, seq: 500 } })).toMatchObject([{ kind: "head" }]);
  });
});

test("rotation drops old files, and what is left is still proven from its first line", async () => {
  const first = new AuditLog(dir, { key });
  const { head: early } = first;
  first.close();
  await writeLog({ files: 2 });
  const found = await verify();
  expect(found).toMatchObject({ isIntact: true, head });
  expect(found.firstSeq).toBeGreaterThan(10);
  expect(await problems({ expected: early })).toMatchObject([{ kind: "head" }]);
  await rm(pathOf(0));
  expect(await problems()).toMatchObject([{ kind: "missing", file: files[1], line: 1 }]);
});

test("a torn last line is removed and reported, and the chain goes on", async () => {
  await writeLog();
  await appendFile(join(dir, "audit.jsonl"), '{"seq":32,"at":"20');
  expect(await problems()).toMatchObject([{ kind: "torn", file: "audit.jsonl" }]);
  const repaired: string[] = [];
  const log = new AuditLog(dir, { key, onRepair: (message) => repaired.push(message) });
  act(log, 31);
  log.close();
  expect(repaired).toEqual([expect.stringContaining("torn")]);
  expect(await verify()).toMatchObject({ isIntact: true, repairs: [{ seq: 32 }] });
});

test("a line that was written right before a crash, and is not in the head record, is kept", async () => {
  await writeLog();
  const record = await readFile(join(dir, "head.json"));
  const log = new AuditLog(dir, { key });
  act(log, 31);
  const { head: last } = log;
  log.close();
  await writeFile(join(dir, "head.json"), record);
  const next = new AuditLog(dir, { key });
  expect(next.head).toEqual(last);
  next.close();
  expect(await verify()).toMatchObject({ isIntact: true, repairs: [] });
});

test("a log that was cut between two servers goes on with the gap in it", async () => {
  await writeLog();
  const lines = await linesOf(files.length - 1);
  await store(files.length - 1, lines.slice(0, -1));
  const repaired: string[] = [];
  const log = new AuditLog(dir, { key, onRepair: (message) => repaired.push(message) });
  act(log, 31);
  log.close();
  expect(repaired).toEqual([expect.stringContaining("missing")]);
  expect(await problems()).toMatchObject([{ kind: "missing", file: "audit.jsonl", line: lines.length }]);
});

test("files of an earlier version stay readable, and what they contain is held fast", async () => {
  const old = '{"at":"2026-01-01T00:00:00.000Z","who":"old","what":"killSandbox","result":"ok"}\n';
  await writeFile(join(dir, "audit-000000000000001.jsonl"), old);
  await writeFile(join(dir, "audit.jsonl"), old.replace("old", "later"));
  await writeLog({ actions: 2 });
  expect(await verify()).toMatchObject({ isIntact: true, unchainedLines: 2, lines: 5 });
  const { lines } = await queryLog(dir, AuditQuery.parse({ what: "killSandbox" }));
  expect(lines.map(({ who }) => who)).toEqual(["old", "later"]);
  await writeFile(join(dir, "audit-000000000000001.jsonl"), old.replace("old", "new"));
  expect(await problems()).toMatchObject([{ kind: "changed", file: "audit-000000000000001.jsonl" }]);
  await rm(join(dir, "audit-000000000000001.jsonl"));
  expect(await problems()).toMatchObject([{ kind: "missing", file: "audit-000000000000001.jsonl" }]);
});

test("a query returns the newest that match, over all files", async () => {
  await writeLog();
  const whats = async (query: object) => {
    const { lines, hasMore } = await queryLog(dir, AuditQuery.parse(query));
    return [lines.map(({ what }) => what), hasMore];
  };
  expect(await whats({ limit: 2 })).toEqual([["action 29", "action 30"], true]);
  expect(await whats({ limit: 3, before: 6 })).toEqual([["action 2", "action 3", "action 4"], true]);
  expect(await whats({ what: "action 7" })).toEqual([["action 7"], false]);
  expect(await whats({ who: "server" })).toEqual([["audit"], false]);
  expect(await whats({ until: "2020-01-01T00:00:00Z" })).toEqual([[], false]);
});

test("the level decides what is recorded, and security always is", async () => {
  const log = new AuditLog(dir, { key });
  for (const level of ["full", "basic", "none"] as const) {
    for (const kind of ["security", "change", "read"] as const) {
      log.record({ who: level, what: kind, result: "ok" }, level, kind);
    }
  }
  log.close();
  const { lines } = await queryLog(dir, AuditQuery.parse({}));
  expect(lines.slice(1).map(({ who, what }) => `${who} ${what}`)).toEqual([
    "full security",
    "full change",
    "full read",
    "basic security",
    "basic change",
    "none security",
  ]);
});
