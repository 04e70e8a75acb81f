import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { afterEach, describe, expect, test } from "vitest";
import { collect } from "../../packages/storage/test/support/contract/use-place.ts";
import { failing } from "../support/object-servers/faults.ts";
import { useRandomFiles } from "../support/object-servers/random-file.ts";
import { gcsPieceBytes, openTestGcs, type TestGcs } from "../support/object-servers/test-gcs.ts";

const makeFile = useRandomFiles();
const places: TestGcs[] = [];
afterEach(async () => {
  await Promise.all(places.splice(0).map((place) => place.close()));
});

async function openPlace(...args: Parameters<typeof openTestGcs>): Promise<TestGcs> {
  const place = await openTestGcs(...args);
  places.push(place);
  return place;
}

const text = (content: string) => Buffer.from(content);
const countOf = ({ server }: TestGcs, operation: string) =>
  server.seen.filter((request) => request.operation === operation).length;

test("a bucket that ignores conditions is refused by the probe, which says what it saw", async () => {
  const { open, bucket } = await openPlace({ conditions: "ignored" });
  await expect(open().probe()).rejects.toMatchObject({
    code: "unsupported",
    details: { seen: expect.stringContaining("created an object that exists already") },
  });
  expect(bucket.names()).toEqual([]);
});

describe("what a store says of its bucket", () => {
  test("a bucket that does not exist", async () => {
    const { open } = await openPlace();
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
  ])("an answer of $status $said is $code, $reason", async ({ status, said, code, reason }) => {
    const { open, server } = await openPlace();
    server.faults = () => ({ do: "refuse", status, code: said });
    const wanted = { code, details: { reason } };
    await expect(open().put("a", text("x"))).rejects.toMatchObject(wanted);
    await expect(open().stat("a")).rejects.toMatchObject(wanted);
  });

  test("nobody who listens", async () => {
    const { open, close } = await openPlace();
    await close();
    places.length = 0;
    await expect(open().get("a")).rejects.toMatchObject({ code: "unavailable", details: { reason: "unreachable" } });
  });
});

describe("an upload in pieces", () => {
  test("carries a broken piece on in its session", async () => {
    const place = await openPlace();
    const file = await makeFile(3 * gcsPieceBytes + 7);
    place.server.faults = failing("resumable upload", { do: "cut" }, { skip: 1 });
    await place.open().upload("big", file.path, file);
    expect(countOf(place, "resumable begin")).toBe(4);
    expect(place.bucket.objects.get("big")?.data.equals(file.content)).toBe(true);
  });

  test.for(["resumable upload", "objects.compose"])("survives the lost answer of %s", async (operation) => {
    const place = await openPlace();
    const store = place.open();
    const file = await makeFile(gcsPieceBytes + 7);
    place.server.faults = failing(operation, { do: "act-then-cut" });
    const info = await store.upload("big", file.path, { ...file, if: "absent" });
    expect((await store.stat("big"))?.version).toBe(info.version);
    expect(place.bucket.objects.get("big")?.data.equals(file.content)).toBe(true);
  });

  test("puts more pieces together than the store takes at once, and leaves none", async () => {
    const place = await openPlace();
    const store = place.open({ pieceBytes: 64 << 10 });
    const file = await makeFile((64 << 10) * 40 + 1);
    await store.upload("big", file.path, file);
    expect(place.bucket.names()).toEqual(["big"]);
    await store.download("big", `${file.path}.back`, file);
    expect((await readFile(`${file.path}.back`)).equals(file.content)).toBe(true);
  });

  test("leaves no pieces behind when it is refused or lost", async () => {
    const { open, server, bucket } = await openPlace();
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

  test("that died is swept up later, and shows in no list", async () => {
    const { open, bucket } = await openPlace();
    const store = open({ sweepAfterMs: -60_000 });
    await store.put("kept", text("x"));
    bucket.insert(`~parts/${randomUUID()}/0`, text("left"), {}, new URLSearchParams());
    expect(await collect(store.list(""))).toHaveLength(1);
    expect(await open().sweep()).toBe(0);
    expect(await store.sweep()).toBe(1);
    expect(bucket.names()).toEqual(["kept"]);
  });
});

describe("bytes on their way back", () => {
  test("a download goes on where a stream broke", async () => {
    const place = await openPlace();
    const store = place.open({ silentWithinMs: 2_000 });
    const file = await makeFile(2 * gcsPieceBytes + 7);
    await store.upload("big", file.path, file);
    place.server.faults = failing("objects.get media", { do: "cut-body", afterBytes: 100_000 }, { times: 2 });
    await store.download("big", `${file.path}.back`, file);
    expect((await readFile(`${file.path}.back`)).equals(file.content)).toBe(true);
    expect(countOf(place, "objects.get media")).toBe(3 + 2);
  });

  test("a reader is told when the object was replaced under it", async () => {
    const { open } = await openPlace();
    const store = open();
    await store.put("a", text("one version"));
    const bytes = await store.read("a", { offset: 0, length: 100 });
    await store.put("a", text("another one"));
    await expect(collect(bytes)).rejects.toMatchObject({ code: "unavailable", details: { reason: "replaced" } });
  });
});

test("a small object that is replaced each time it is about to be read is read in the end", async () => {
  const { open, server, bucket } = await openPlace();
  const store = open();
  await store.put("a", text("0"));
  server.faults = ({ operation, nth }) => {
    if (operation === "objects.get media" && nth <= 4) bucket.insert("a", text(String(nth)), {}, new URLSearchParams());
    return undefined;
  };
  expect((await store.get("a"))?.data.toString()).toBe("4");
});

test("a removal under a condition whose answer is lost is done, and leaves nothing", async () => {
  const { open, server, bucket } = await openPlace();
  const store = open();
  const { version } = await store.put("a", text("x"));
  server.faults = failing("objects.insert", { do: "act-then-cut" }, { skip: 1 });
  expect(await store.remove("a", { if: version })).toBe(true);
  expect(bucket.names()).toEqual([]);
});
