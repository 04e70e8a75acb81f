import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { afterEach, describe, expect, test } from "vitest";
import { collect } from "../../packages/storage/test/support/contract/use-place.ts";
import { failing } from "../support/object-servers/faults.ts";
import { useRandomFiles } from "../support/object-servers/random-file.ts";
import { gcsPieceBytes, openTestGcs, type TestGcs } from "../support/object-servers/test-gcs.ts";

const makeFile = useRandomFiles();
const opened: TestGcs[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((testStore) => testStore.close()));
});

async function openTestStore(...args: Parameters<typeof openTestGcs>): Promise<TestGcs> {
  const testStore = await openTestGcs(...args);
  opened.push(testStore);
  return testStore;
}

const text = (content: string) => Buffer.from(content);
const countOf = ({ server }: TestGcs, operation: string) =>
  server.seen.filter((request) => request.operation === operation).length;

test("a bucket that ignores conditions is refused by the probe, which reports what it saw", async () => {
  const { open, bucket } = await openTestStore({ conditions: "ignored" });
  await expect(open().probe()).rejects.toMatchObject({
    code: "unsupported",
    details: { seen: expect.stringContaining("created an object that exists already") },
  });
  expect(bucket.names()).toEqual([]);
});

describe("the error of a store", () => {
  test("for a bucket that does not exist", async () => {
    const { open } = await openTestStore();
    const store = open({ bucket: "nowhere" });
    const wanted = { code: "storage_failed", details: { reason: "bucket_missing" } };
    await expect(store.get("a")).rejects.toMatchObject(wanted);
    await expect(store.put("a", text("x"))).rejects.toMatchObject(wanted);
  });

  test.for([
    { status: 401, said: "Invalid Credentials", code: "storage_failed", reason: "credentials" },
    { status: 403, said: "forbidden", code: "storage_failed", reason: "credentials" },
    { status: 403, said: "userRateLimitExceeded", code: "unavailable", reason: "throttled" },
    { status: 429, said: "Too Many Requests", code: "unavailable", reason: "throttled" },
    { status: 503, said: "Backend Error", code: "unavailable", reason: "unreachable" },
  ])("for a response with $status $said is $code, $reason", async ({ status, said, code, reason }) => {
    const { open, server } = await openTestStore();
    server.faults = () => ({ do: "refuse", status, code: said });
    const wanted = { code, details: { reason } };
    await expect(open().put("a", text("x"))).rejects.toMatchObject(wanted);
    await expect(open().stat("a")).rejects.toMatchObject(wanted);
  });

  test("for a server that does not listen", async () => {
    const { open, close } = await openTestStore();
    await close();
    opened.length = 0;
    await expect(open().get("a")).rejects.toMatchObject({ code: "unavailable", details: { reason: "unreachable" } });
  });
});

describe("an upload in pieces", () => {
  test("continues a broken piece in its session", async () => {
    const testStore = await openTestStore();
    const file = await makeFile(3 * gcsPieceBytes + 7);
    testStore.server.faults = failing("resumable upload", { do: "cut" }, { skip: 1 });
    await testStore.open().upload("big", file.path, file);
    expect(countOf(testStore, "resumable begin")).toBe(4);
    expect(testStore.bucket.objects.get("big")?.data.equals(file.content)).toBe(true);
  });

  test.for(["resumable upload", "objects.compose"])("survives a lost response to %s", async (operation) => {
    const testStore = await openTestStore();
    const store = testStore.open();
    const file = await makeFile(gcsPieceBytes + 7);
    testStore.server.faults = failing(operation, { do: "act-then-cut" });
    const info = await store.upload("big", file.path, { ...file, if: "absent" });
    expect((await store.stat("big"))?.version).toBe(info.version);
    expect(testStore.bucket.objects.get("big")?.data.equals(file.content)).toBe(true);
  });

  test("composes more pieces than the store accepts at once, and leaves none of them", async () => {
    const testStore = await openTestStore();
    const store = testStore.open({ pieceBytes: 64 << 10 });
    const file = await makeFile((64 << 10) * 40 + 1);
    await store.upload("big", file.path, file);
    expect(testStore.bucket.names()).toEqual(["big"]);
    await store.download("big", `${file.path}.back`, file);
    expect((await readFile(`${file.path}.back`)).equals(file.content)).toBe(true);
  });

  test("leaves no pieces when it is refused or loses", async () => {
    const { open, server, bucket } = await openTestStore();
    const store = open();
    const file = await makeFile(gcsPieceBytes + 1);
    await expect(store.upload("a", file.path, { ...file, sha256: "0".repeat(64) })).rejects.toThrow("expected");
    await store.put("taken", text("x"));
    const taken = store.upload("taken", file.path, { ...file, if: "absent" });
    await expect(taken).rejects.toMatchObject({ code: "conflict" });
    server.faults = failing("objects.compose", { do: "refuse", status: 500, code: "Backend Error" }, { times: 100 });
    await expect(store.upload("a", file.path, file)).rejects.toMatchObject({ code: "unavailable" });
    expect(bucket.names()).toEqual(["taken"]);
  });

  test("that was interrupted is swept later, and appears in no list", async () => {
    const { open, bucket } = await openTestStore();
    const store = open({ sweepAfterMs: -60_000 });
    await store.put("kept", text("x"));
    bucket.insert(`~parts/${randomUUID()}/0`, text("left"), {}, new URLSearchParams());
    expect(await collect(store.list(""))).toHaveLength(1);
    expect(await open().sweep()).toBe(0);
    expect(await store.sweep()).toBe(1);
    expect(bucket.names()).toEqual(["kept"]);
  });
});

describe("reading", () => {
  test("continues a download where a stream broke off", async () => {
    const testStore = await openTestStore();
    const store = testStore.open({ silentWithinMs: 2_000 });
    const file = await makeFile(2 * gcsPieceBytes + 7);
    await store.upload("big", file.path, file);
    testStore.server.faults = failing("objects.get media", { do: "cut-body", afterBytes: 100_000 }, { times: 2 });
    await store.download("big", `${file.path}.back`, file);
    expect((await readFile(`${file.path}.back`)).equals(file.content)).toBe(true);
    expect(countOf(testStore, "objects.get media")).toBe(3 + 2);
  });

  test("fails when the object was replaced during the read", async () => {
    const { open } = await openTestStore();
    const store = open();
    await store.put("a", text("one version"));
    const bytes = await store.read("a", { offset: 0, length: 100 });
    await store.put("a", text("another one"));
    await expect(collect(bytes)).rejects.toMatchObject({ code: "unavailable", details: { reason: "replaced" } });
  });
});

test("a small object that is replaced before each attempt is read in the end", async () => {
  const { open, server, bucket } = await openTestStore();
  const store = open();
  await store.put("a", text("0"));
  server.faults = ({ operation, nth }) => {
    if (operation === "objects.get media" && nth <= 4) bucket.insert("a", text(String(nth)), {}, new URLSearchParams());
    return undefined;
  };
  expect((await store.get("a"))?.data.toString()).toBe("4");
});

test("a conditional removal whose response is lost is done, and leaves nothing", async () => {
  const { open, server, bucket } = await openTestStore();
  const store = open();
  const { version } = await store.put("a", text("x"));
  server.faults = failing("objects.insert", { do: "act-then-cut" }, { skip: 1 });
  expect(await store.remove("a", { if: version })).toBe(true);
  expect(bucket.names()).toEqual([]);
});
