import { randomBytes } from "node:crypto";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { AuditLog } from "../../src/audit/audit-log.ts";

const key = randomBytes(32);
let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-audit-"));
});
afterEach(async () => {
  await rm(dir, { recursive: true, force: true });
});

async function lines(name = "audit.jsonl"): Promise<unknown[]> {
  const text = await readFile(join(dir, name), "utf8");
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as unknown);
}

test("a line has the principal, the action, the time and the result, and survives its writer", async () => {
  new AuditLog(dir, { key }).write({ who: "key1", what: "createSandbox", sandboxId: "sb", result: "ok", bytesOut: 12 });
  new AuditLog(dir, { key }).write({ who: "key2", what: "killSandbox", result: "permission_denied" });
  expect(await lines()).toMatchObject([
    { seq: 1, who: "server", what: "audit", result: "begun" },
    { at: expect.stringMatching(/^\d{4}-.*Z$/) as string, who: "key1", what: "createSandbox", bytesOut: 12 },
    { who: "key2", result: "permission_denied" },
  ]);
});

test("secrets are left out at any place", async () => {
  new AuditLog(dir, { key }).write({
    who: "key1",
    what: "runCommand",
    result: "ok",
    details: {
      env: { PASSWORD: "hunter2" },
      argv: ["curl", "-H", "Authorization: Bearer hunter2", "https://me:hunter2@example.com/x"],
      nested: [{ apiKey: "hunter2", token: "hunter2", note: `sbt_${"h".repeat(43)}` }],
      key: `atk_${"k".repeat(12)}_${"h".repeat(43)}`,
    },
  });
  const text = JSON.stringify(await lines());
  expect(text).not.toContain("hunter2");
  expect(text).not.toContain("hhhh");
  expect(text).toContain("PASSWORD");
  expect(text).toContain("example.com");
});

test("unauthenticated requests write a limited number of lines, and the rest is counted", async () => {
  const audit = new AuditLog(dir, { key, unauthenticatedPerMinute: 3 });
  for (let index = 0; index < 10; index += 1) {
    audit.record({ who: "nobody", what: "createSandbox", result: "permission_denied" });
  }
  audit.record({ who: "key1", what: "killSandbox", result: "ok" });
  audit.record({ who: "key1", what: "killSandbox", result: "ok" });
  expect((await lines()).slice(1)).toMatchObject([
    { who: "nobody" },
    { who: "nobody" },
    { who: "nobody" },
    { who: "server", what: "audit", result: "left out", details: { lines: 7 } },
    { who: "key1" },
    { who: "key1" },
  ]);
});

test("a line that cannot be written is reported to the caller or logged, and leaves no half line", async () => {
  const failed: unknown[] = [];
  const audit = new AuditLog(dir, { key, fileBytes: 1, onError: (_, { what }) => failed.push(what) });
  audit.record({ who: "key1", what: "createSandbox", result: "ok" });
  await rm(dir, { recursive: true });
  audit.record({ who: "key1", what: "killSandbox", result: "ok" });
  expect(failed).toEqual(["killSandbox"]);
  expect(() => audit.write({ who: "key1", what: "killSandbox", result: "ok" })).toThrow("ENOENT");
});

test("files are rotated by size, and a limited number is kept", async () => {
  const audit = new AuditLog(dir, { key, fileBytes: 500, files: 2 });
  for (let index = 0; index < 50; index += 1) audit.write({ who: "key", what: `action ${index}`, result: "ok" });
  const names = (await readdir(dir)).toSorted();
  expect(names).toHaveLength(4);
  const all = (await Promise.all([...names.slice(0, 2), "audit.jsonl"].map((name) => lines(name)))).flat();
  const kept = all.filter((line) => (line as { who: string }).who === "key");
  const last = Array.from({ length: kept.length }, (_, index) => ({ what: `action ${50 - kept.length + index}` }));
  expect(kept).toMatchObject(last);
});
