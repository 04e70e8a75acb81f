import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { afterEach, describe, expect, test } from "vitest";
import { collect } from "../../packages/storage/test/support/contract/use-place.ts";
import { failing } from "../support/object-servers/faults.ts";
import { useRandomFiles } from "../support/object-servers/random-file.ts";
import { openTestS3, s3PieceBytes, type TestS3 } from "../support/object-servers/test-s3.ts";

const makeFile = useRandomFiles();
const opened: TestS3[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((testStore) => testStore.close()));
});

async function openTestStore(...args: Parameters<typeof openTestS3>): Promise<TestS3> {
  const testStore = await openTestS3(...args);
  opened.push(testStore);
  return testStore;
}

const text = (content: string) => Buffer.from(content);
const radosgw = { ifMatch: "bare", completeConditions: "ignored", deleteConditions: "ignored" } as const;

describe("a bucket that ignores conditions", () => {
  test("is refused by the probe, which reports what it saw", async () => {
    const { open, bucket } = await openTestStore({ putConditions: "ignored" });
    await expect(open().probe()).rejects.toMatchObject({
      code: "unsupported",
      details: { seen: expect.stringContaining("If-None-Match is ignored") },
    });
    expect(bucket.keys()).toEqual([]);
  });

  test.for([
    { at: 1, seen: /let [2-6] of 6 create one object/ },
    { at: 7, seen: /let [2-6] of 6 replace one version/ },
  ])("is refused when several writers win a race: $seen", async ({ at, seen }) => {
    const { open, server } = await openTestStore({ putConditions: "early" });
    let arrived = 0;
    let go = (): void => undefined;
    const until = new Promise<void>((resolve) => {
      go = resolve;
    });
    server.faults = ({ operation, key }) => {
      if (operation !== "PutObject" || !key.endsWith("/race")) return undefined;
      arrived += 1;
      // The server has checked the conditions of both racing requests before it carries out either.
      if (arrived === at + 1) go();
      return arrived === at || arrived === at + 1 ? { do: "hold", until } : undefined;
    };
    await expect(open().probe()).rejects.toMatchObject({
      code: "unsupported",
      details: { seen: expect.stringMatching(seen) },
    });
  });

  test("accepts unconditional writes, and no conditional ones", async () => {
    const store = (await openTestStore({ putConditions: "ignored" })).open();
    await store.put("a", text("plain"));
    await expect(store.put("b", text("x"), { if: "absent" })).rejects.toMatchObject({ code: "unsupported" });
    expect(await store.stat("b")).toBeUndefined();
  });
});

describe("the error of a store", () => {
  test("for refused credentials", async () => {
    const { open } = await openTestStore();
    const store = open({ credentials: { accessKeyId: "someone-else", secretAccessKey: "secret" } });
    const wanted = { code: "storage_failed", details: { reason: "credentials", said: "InvalidAccessKeyId" } };
    await expect(store.put("a", text("x"))).rejects.toMatchObject(wanted);
    await expect(store.probe()).rejects.toMatchObject(wanted);
  });

  test("for a bucket that does not exist", async () => {
    const { open } = await openTestStore();
    const store = open({ bucket: "nowhere" });
    const wanted = { code: "storage_failed", details: { reason: "bucket_missing" } };
    await expect(store.get("a")).rejects.toMatchObject(wanted);
    await expect(store.put("a", text("x"))).rejects.toMatchObject(wanted);
  });

  test("comes only after retries of a server that asks to slow down", async () => {
    const { open, server } = await openTestStore();
    const store = open();
    server.faults = failing("PutObject", { do: "refuse", status: 503, code: "SlowDown" });
    await store.put("a", text("x"));
    server.calm();
    server.faults = failing("PutObject", { do: "refuse", status: 503, code: "SlowDown" }, { times: 100 });
    const throttled = { code: "unavailable", details: { reason: "throttled" } };
    await expect(store.put("a", text("y"))).rejects.toMatchObject(throttled);
    expect(server.seen.filter(({ operation }) => operation === "PutObject")).toHaveLength(3);
  });

  test("for a server that does not listen", async () => {
    const { open, close } = await openTestStore();
    const store = open();
    await close();
    opened.length = 0;
    await expect(store.get("a")).rejects.toMatchObject({ code: "unavailable", details: { reason: "unreachable" } });
  });

  test("does not come for a clock that is an hour off, which is corrected", async () => {
    const { open } = await openTestStore({}, () => Date.now() + 3_600_000);
    const store = open();
    await store.put("a", text("x"));
    expect((await store.get("a"))?.data.toString()).toBe("x");
  });

  test("for a clock that cannot be corrected", async () => {
    const { open, server } = await openTestStore();
    const skewed = { do: "refuse", status: 403, code: "RequestTimeTooSkewed" } as const;
    server.faults = failing("PutObject", skewed, { times: 100 });
    const wanted = { code: "storage_failed", details: { reason: "clock_skew" } };
    await expect(open().put("a", text("x"))).rejects.toMatchObject(wanted);
  });
});

test("a write that conflicts with another one is retried, and only its condition decides", async () => {
  const { open, server } = await openTestStore();
  const store = open();
  await store.probe();
  server.calm();
  server.faults = failing("PutObject", { do: "refuse", status: 409, code: "ConditionalRequestConflict" }, { times: 2 });
  await store.put("a", text("mine"), { if: "absent" });
  expect((await store.get("a"))?.data.toString()).toBe("mine");
  await expect(store.put("a", text("x"), { if: "absent" })).rejects.toMatchObject({ code: "conflict" });
});

test("a create and a replacement whose responses are lost are done", async () => {
  const { open, server } = await openTestStore();
  const store = open();
  await store.probe();
  server.calm();
  server.faults = failing("PutObject", { do: "act-then-cut" });
  const created = await store.put("a", text("one"), { if: "absent" });
  expect((await store.stat("a"))?.version).toBe(created.version);
  server.calm();
  server.faults = failing("PutObject", { do: "act-then-cut" });
  const replaced = await store.put("a", text("two"), { if: created.version });
  expect((await store.get("a"))?.info.version).toBe(replaced.version);
});

describe("an upload in parts", () => {
  test("repeats only the part that broke off", async () => {
    const { open, server } = await openTestStore();
    const file = await makeFile(3 * s3PieceBytes + 7);
    server.faults = failing("UploadPart", { do: "cut" }, { skip: 1 });
    await open().upload("big", file.path, file);
    expect(server.seen.filter(({ operation }) => operation === "UploadPart")).toHaveLength(4 + 1);
  });

  test("sends at most the allowed number of parts at once", async () => {
    const { open, server } = await openTestStore();
    const store = open({ parallel: 2 });
    const file = await makeFile(4 * s3PieceBytes);
    const held: (() => void)[] = [];
    let most = 0;
    server.faults = ({ operation }) => {
      if (operation !== "UploadPart") return undefined;
      const until = new Promise<void>((resolve) => held.push(resolve));
      most = Math.max(most, held.length);
      return { do: "hold", until };
    };
    // The test makes two calls at once, because the limit applies to all of them together.
    const uploads = ["one", "two"].map((key) => store.upload(key, file.path, file));
    for (let part = 1; part <= 8; part++) {
      await expect.poll(() => held.length).toBe(part < 8 ? 2 : 1);
      held.shift()?.();
    }
    await Promise.all(uploads);
    expect(most).toBe(2);
  });

  test("whose last response is lost is done exactly once", async () => {
    const { open, server } = await openTestStore();
    const store = open();
    const file = await makeFile(s3PieceBytes + 1);
    server.faults = failing("CompleteMultipartUpload", { do: "act-then-cut" });
    const plain = await store.upload("plain", file.path, file);
    expect((await store.stat("plain"))?.version).toBe(plain.version);
    await store.probe();
    server.calm();
    server.faults = failing("CompleteMultipartUpload", { do: "act-then-cut" });
    const created = await store.upload("created", file.path, { ...file, if: "absent" });
    expect((await store.stat("created"))?.version).toBe(created.version);
  });

  test("leaves no parts when it is aborted, refused or loses", async () => {
    const { open, server, bucket } = await openTestStore();
    const store = open();
    const file = await makeFile(s3PieceBytes + 1);
    await expect(store.upload("a", file.path, { ...file, sha256: "0".repeat(64) })).rejects.toThrow("expected");
    await store.put("taken", text("x"));
    await expect(store.upload("taken", file.path, { ...file, if: "absent" })).rejects.toMatchObject({
      code: "conflict",
    });
    server.calm();
    server.faults = failing("UploadPart", { do: "refuse", status: 500, code: "InternalError" }, { times: 100 });
    await expect(store.upload("a", file.path, file)).rejects.toMatchObject({ code: "unavailable" });
    expect(bucket.uploads.size).toBe(0);
    expect(bucket.keys()).toEqual(["taken"]);
  });

  test("is one write if the store enforces conditions only there, and the server checks its bytes", async () => {
    const { open, server, bucket } = await openTestStore(radosgw);
    const store = open();
    const file = await makeFile(s3PieceBytes + 1);
    await store.probe();
    server.calm();
    server.faults = failing("PutObject", { do: "cut" });
    await store.upload("big", file.path, { ...file, if: "absent" });
    expect(server.seen.map(({ operation }) => operation)).not.toContain("CreateMultipartUpload");
    const sent = server.seen.findLast(({ operation }) => operation === "PutObject");
    const stored = bucket.objects.get("big")?.data ?? Buffer.alloc(0);
    expect(sent?.headers["x-amz-content-sha256"]).toBe(createHash("sha256").update(stored).digest("hex"));
  });
});

describe("reading", () => {
  test("continues a download where a stream broke off", async () => {
    const { open, server } = await openTestStore();
    const store = open();
    const file = await makeFile(2 * s3PieceBytes + 7);
    await store.upload("big", file.path, file);
    server.calm();
    server.faults = failing("GetObject", { do: "cut-body", afterBytes: 1_000_000 }, { times: 2 });
    await store.download("big", `${file.path}.back`, file);
    expect((await readFile(`${file.path}.back`)).equals(file.content)).toBe(true);
    const asked = server.seen.filter(({ operation }) => operation === "GetObject");
    expect(asked).toHaveLength(3 + 2);
  });

  test("reads a small object again whose body broke off", async () => {
    const { open, server } = await openTestStore();
    const store = open();
    await store.put("a", Buffer.alloc(100_000, 1));
    server.faults = failing("GetObject", { do: "cut-body", afterBytes: 50_000 });
    expect((await store.get("a"))?.data.length).toBe(100_000);
  });

  test("fails when the object was replaced during the read", async () => {
    const { open } = await openTestStore();
    const store = open();
    await store.put("a", text("one version"));
    const bytes = await store.read("a", { offset: 0, length: 100 });
    await store.put("a", text("another one"));
    await expect(collect(bytes)).rejects.toMatchObject({ code: "unavailable" });
  });
});

describe("a conditional removal", () => {
  test.for([{}, radosgw])("whose response is lost is done, on a bucket like %j", async (behaviour) => {
    const { open, server } = await openTestStore(behaviour);
    const store = open();
    await store.probe();
    const { version } = await store.put("a", text("x"));
    server.calm();
    server.faults = failing("PutObject", { do: "act-then-cut" });
    expect(await store.remove("a", { if: version })).toBe(true);
    expect(await store.get("a")).toBeUndefined();
    await store.put("a", text("again"), { if: "absent" });
    expect((await store.get("a"))?.data.toString()).toBe("again");
  });

  test("leaves nothing if the store enforces conditions of removals, and a few bytes if not", async () => {
    const honest = await openTestStore();
    const like = await openTestStore(radosgw);
    for (const { open } of [honest, like]) {
      const store = open();
      await store.remove("a", { if: (await store.put("a", text("x"))).version });
      expect(await store.stat("a")).toBeUndefined();
    }
    expect(honest.bucket.keys()).toEqual([]);
    expect(like.bucket.keys()).toEqual(["a"]);
  });
});

describe("a sweep", () => {
  const day = 24 * 3_600_000;

  test("ends abandoned uploads, and only those", async () => {
    let nowMs = Date.now();
    const { open, bucket } = await openTestStore({}, () => nowMs);
    nowMs -= 10 * 60_000;
    for (const key of ["ours/a", "ours/b", "ours/c", "theirs/a"]) bucket.createUpload(key, {});
    nowMs += 10 * 60_000;
    const young = bucket.createUpload("ours/young", {});
    const isOurs = () => true;
    expect(await open({ prefix: "ours", sweepAfterMs: day }).sweep({ isOurs })).toBe(0);
    expect(await open({ prefix: "ours", sweepAfterMs: 5 * 60_000 }).sweep({ isOurs })).toBe(3);
    expect([...bucket.uploads.values()].map(({ key }) => key)).toEqual(["theirs/a", "ours/young"]);
    expect([...bucket.uploads.keys()].at(-1)).toBe(young);
  });

  test("removes the mark of a removal, and keeps an object that replaced the mark", async () => {
    const { open, server, bucket } = await openTestStore();
    const store = open({ sweepAfterMs: -60_000 });
    await store.probe();
    for (const key of ["gone", "back"]) {
      server.calm();
      const { version } = await store.put(key, text("x"));
      server.faults = failing("DeleteObject", { do: "refuse", status: 500, code: "InternalError" }, { times: 100 });
      await store.remove(key, { if: version });
    }
    server.calm();
    expect(bucket.keys()).toEqual(["back", "gone"]);
    await store.put("back", text("again"), { if: "absent" });
    expect(await store.sweep()).toBe(1);
    expect(bucket.keys()).toEqual(["back"]);
  });
});
