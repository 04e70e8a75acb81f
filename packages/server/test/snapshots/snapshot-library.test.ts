import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandboxError, SandboxId, SnapshotName } from "@atoll/protocol";
import { FileObjectStore, type ObjectStore } from "@atoll/storage";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { NewEvent } from "../../src/events/event-journal.ts";
import type { SnapshotLibrary, SnapshotLibraryOptions } from "../../src/snapshots/snapshot-library.ts";
import type { SnapshotUser } from "../../src/snapshots/snapshot-user.ts";
import { openTestLibrary, testEngine, testFiles, testUser } from "../support/test-library.ts";

const sandboxId = SandboxId.parse("s".repeat(20));
const name = SnapshotName.parse("tools");
const other: SnapshotUser = { keyId: "other", namespace: "other", seesAll: false };
const admin: SnapshotUser = { keyId: "root", namespace: "admin", seesAll: true };

let dir: string;
let store: ObjectStore;
let library: SnapshotLibrary;
let emitted: NewEvent[];

const open = (options: Partial<SnapshotLibraryOptions> = {}): Promise<SnapshotLibrary> =>
  openTestLibrary(dir, store, { emit: (event) => emitted.push(event), ...options });

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-snapshots-"));
  store = await FileObjectStore.open(join(dir, "store"));
  emitted = [];
  library = await open();
});
afterEach(async () => {
  await library.close();
  await store.close();
  await rm(dir, { recursive: true, force: true });
});

async function exported(): Promise<Buffer> {
  const { sizeBytes, pieces } = await library.export(name, testUser, new AbortController().signal);
  const all: Buffer[] = [];
  for await (const piece of pieces) all.push(piece);
  const file = Buffer.concat(all);
  expect(file.byteLength).toBe(sizeBytes);
  return file;
}

async function* once(file: Buffer): AsyncGenerator<Buffer, void, void> {
  yield file;
}

const importing = (file: Buffer, as = "copy", into = library) =>
  into.import(SnapshotName.parse(as), once(file), { user: testUser, signal: new AbortController().signal });

async function stored(): Promise<string[]> {
  const keys: string[] = [];
  for await (const { key } of store.list("snapshots/")) keys.push(key);
  return keys;
}

test("an exported snapshot is imported elsewhere unchanged, and a sandbox can be created from it", async () => {
  const taken = await library.take(sandboxId, name, testUser);
  const copy = await importing(await exported());
  expect(copy).toEqual({ ...taken, name: "copy", ref: "me/copy" });
  const archive = await library.use(copy.name, testUser, async (source) => {
    expect(source.template).toBe("host");
    return readFile(await source.files.archive());
  });
  expect(testFiles.equals(archive)).toBe(true);
  expect(emitted.map(({ type }) => type)).toEqual(["snapshot.created", "snapshot.created"]);
  expect(await readdir(join(dir, "scratch"))).toEqual([]);
});

const notFound = { code: "not_found" };

test("a name belongs to its key: another key neither finds it nor is kept from it", async () => {
  const mine = await library.take(sandboxId, name, testUser);
  for (const ref of [name, "me/tools"]) {
    await expect(library.get(ref, other)).rejects.toMatchObject(notFound);
    await expect(library.remove(ref, other)).rejects.toMatchObject(notFound);
    await expect(library.share(ref, other, true)).rejects.toMatchObject(notFound);
    await expect(library.use(ref, other, async () => 0)).rejects.toMatchObject(notFound);
  }
  expect(await library.list(other)).toEqual([]);
  const theirs = await library.take(sandboxId, name, other);
  expect([mine.ref, theirs.ref]).toEqual(["me/tools", "other/tools"]);
  expect(await library.get(name, testUser)).toEqual(mine);
  expect(await library.get(name, other)).toEqual(theirs);
  // A key that sees everything has to name the namespace: the bare name would find the first one.
  await expect(library.get(name, admin)).rejects.toMatchObject(notFound);
  expect(await library.get("other/tools", admin)).toEqual(theirs);
  expect((await library.list(admin)).map(({ ref }) => ref)).toEqual(["me/tools", "other/tools"]);
});

test("a shared snapshot can be used by every key under its namespace, and changed only by its owner", async () => {
  await library.take(sandboxId, name, testUser);
  expect(await library.share(name, testUser, true)).toMatchObject({ ref: "me/tools", shared: true });
  expect(await library.use("me/tools", other, async ({ template }) => template)).toBe("host");
  expect((await library.list(other)).map(({ ref }) => ref)).toEqual(["me/tools"]);
  await expect(library.get(name, other)).rejects.toMatchObject(notFound);
  await expect(library.remove("me/tools", other)).rejects.toMatchObject({ code: "permission_denied" });
  await expect(library.share("me/tools", other, false)).rejects.toMatchObject({ code: "permission_denied" });
  expect(await library.share("me/tools", admin, false)).toMatchObject({ shared: false });
  await expect(library.get("me/tools", other)).rejects.toMatchObject(notFound);
});

describe("a snapshot from before there were namespaces", () => {
  beforeEach(async () => {
    await library.take(sandboxId, name, testUser);
    for (const key of await stored()) {
      const { data } = (await store.get(key)) ?? { data: Buffer.alloc(0) };
      const { namespace: _, ...manifest } = key.endsWith(".json") ? JSON.parse(data.toString()) : {};
      const old = JSON.stringify(manifest).replace("snapshots/@me/", "snapshots/");
      await store.put(key.replace("@me/", ""), key.endsWith(".json") ? Buffer.from(old) : data);
      await store.remove(key);
    }
  });

  test("is found by its name by its owner, and by keys that see everything", async () => {
    for (const [user, ref] of [
      [testUser, name],
      [testUser, "me/tools"],
      [admin, name],
      [admin, "me/tools"],
    ] as const) {
      expect(await library.get(ref, user)).toMatchObject({ name, ref: "me/tools", owner: "me", shared: false });
    }
    const archive = await library.use(name, testUser, async ({ files }) => readFile(await files.archive()));
    expect(testFiles.equals(archive)).toBe(true);
    for (const ref of [name, "me/tools", "other/tools", "admin/tools"]) {
      await expect(library.get(ref, other)).rejects.toMatchObject(notFound);
    }
    await expect(library.take(sandboxId, name, testUser)).rejects.toMatchObject({ code: "already_exists" });
    await expect(library.take(sandboxId, name, admin)).rejects.toMatchObject({ code: "already_exists" });
    expect(await library.take(sandboxId, name, other)).toMatchObject({ ref: "other/tools" });
  });

  test("can be shared and removed", async () => {
    await library.share(name, testUser, true);
    expect(await library.get("me/tools", other)).toMatchObject({ shared: true });
    await library.remove(name, admin);
    expect(await stored()).toEqual([]);
  });

  test("blocks its name only for keys that see everything if it is unreadable", async () => {
    await store.put("snapshots/tools/manifest.json", Buffer.from("of others"));
    await expect(library.get(name, testUser)).rejects.toMatchObject(notFound);
    expect(await library.take(sandboxId, name, testUser)).toMatchObject({ ref: "me/tools" });
    await expect(library.get(name, admin)).rejects.toMatchObject({ code: "unrestorable" });
    await expect(library.take(sandboxId, name, admin)).rejects.toMatchObject({ code: "already_exists" });
  });
});

test("of many that want a name one gets it, and nothing is left of the others", async () => {
  const taking = Array.from({ length: 8 }, () => library.take(sandboxId, name, testUser));
  const results = await Promise.allSettled(taking);
  expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  for (const result of results) {
    if (result.status === "rejected") expect(result.reason).toMatchObject({ code: "already_exists" });
  }
  expect(await stored()).toHaveLength(2);
  await library.remove(name, testUser);
  expect(await stored()).toEqual([]);
});

describe("a file to import", () => {
  const changed = (file: Buffer, at: number): Buffer => {
    const other = Buffer.from(file);
    other[at] = (other[at] ?? 0) ^ 1;
    return other;
  };

  test.for<[what: string, change: (file: Buffer) => Buffer]>([
    ["that is cut off", (file) => file.subarray(0, -1)],
    ["with more data after its end", (file) => Buffer.concat([file, Buffer.alloc(1)])],
    ["with another last byte", (file) => changed(file, file.byteLength - 1)],
    ["with another header", (file) => changed(file, 100)],
    ["of text", () => Buffer.from("any text\n")],
  ])("%s is refused, and nothing is left of it", async ([, change]) => {
    await library.take(sandboxId, name, testUser);
    const before = await stored();
    await expect(importing(change(await exported()))).rejects.toMatchObject({ code: "invalid_argument" });
    expect(await stored()).toEqual(before);
    expect(await readdir(join(dir, "scratch"))).toEqual([]);
  });

  test("with an archive that would harm the machine that unpacks it is refused", async () => {
    await library.take(sandboxId, name, testUser);
    const file = await exported();
    const wary = await open({
      engine: {
        ...testEngine,
        checkFiles: async () => {
          throw new SandboxError("unrestorable", "Cannot use the files: .. leads out");
        },
      },
    });
    await expect(importing(file, "copy", wary)).rejects.toMatchObject({ code: "invalid_argument" });
    expect(await stored()).toHaveLength(2);
  });

  test("that is larger than the limit of this server is refused before it is read", async () => {
    await library.take(sandboxId, name, testUser);
    const small = await open({ maxBytes: 1024 });
    await expect(importing(await exported(), "copy", small)).rejects.toMatchObject({ code: "limit_reached" });
    await expect(small.take(sandboxId, SnapshotName.parse("x"), testUser)).rejects.toMatchObject({
      code: "limit_reached",
    });
  });
});

test("without a store everything is refused, and the error names the setting", async () => {
  const none = await open({ store: undefined });
  none.start();
  const refusal = { code: "unsupported", details: { setting: "snapshotStore" } };
  await expect(none.take(sandboxId, name, testUser)).rejects.toMatchObject(refusal);
  await expect(none.list(testUser)).rejects.toMatchObject(refusal);
  await expect(none.get(name, testUser)).rejects.toMatchObject(refusal);
  await expect(importing(Buffer.alloc(0), "copy", none)).rejects.toMatchObject(refusal);
});

test("a manifest that was changed by hand is not followed", async () => {
  await library.take(sandboxId, name, testUser);
  const got = await store.get("snapshots/@me/tools/manifest.json");
  const manifest = JSON.parse(got?.data.toString() ?? "") as object;
  await store.put(
    "snapshots/@me/tools/manifest.json",
    Buffer.from(JSON.stringify({ ...manifest, key: "sandboxes/x" })),
  );
  await expect(library.get(name, testUser)).rejects.toMatchObject({ code: "unrestorable" });
  expect(await library.list(testUser)).toEqual([]);
});

describe("an archive in the store", () => {
  const archiveKey = async (): Promise<string> => (await stored()).find((key) => !key.endsWith("manifest.json")) ?? "";
  const changed = async (change: (bytes: Buffer) => Buffer): Promise<void> => {
    const key = await archiveKey();
    const got = await store.get(key);
    await store.put(key, change(got?.data ?? Buffer.alloc(0)));
  };

  test.for<[what: string, change: () => Promise<unknown>]>([
    ["with another last byte", () => changed((bytes) => Buffer.concat([bytes.subarray(0, -1), Buffer.from("x")]))],
    ["of the same length from another client", () => changed((bytes) => Buffer.alloc(bytes.byteLength, 1))],
    ["that is cut off", () => changed((bytes) => bytes.subarray(0, -1))],
    ["with more data after its end", () => changed((bytes) => Buffer.concat([bytes, bytes]))],
    ["that is empty", () => changed(() => Buffer.alloc(0))],
    ["that is missing", async () => store.remove(await archiveKey())],
  ])("%s is not used for a sandbox or an export, and can be removed", async ([, change]) => {
    await library.take(sandboxId, name, testUser);
    const whole = await exported();
    await change();
    const using = library.use(name, testUser, async ({ files }) => files.archive());
    await expect(using).rejects.toMatchObject({ code: "unrestorable" });
    let bytes = 0;
    const exporting = async (): Promise<number> => {
      const { sizeBytes, pieces } = await library.export(name, testUser, new AbortController().signal);
      for await (const piece of pieces) bytes += piece.byteLength;
      return sizeBytes;
    };
    await expect(exporting()).rejects.toMatchObject({ code: "unrestorable" });
    expect(bytes).toBeLessThan(whole.byteLength);
    await library.remove(name, testUser);
    expect(await stored()).toEqual([]);
    expect(await readdir(join(dir, "scratch"))).toEqual([]);
  });

  test("that is removed with its snapshot during use causes not_found", async () => {
    await library.take(sandboxId, name, testUser);
    const using = library.use(name, testUser, async ({ files }) => {
      await library.remove(name, testUser);
      return files.archive();
    });
    await expect(using).rejects.toMatchObject({ code: "not_found", details: { name } });
  });
});

test("a server that stops aborts the work in progress, and nothing is left of it", async () => {
  let begun = (): void => undefined;
  const saving = new Promise<void>((resolve) => {
    begun = resolve;
  });
  const slow = await open({
    engine: {
      ...testEngine,
      saveFiles: (_id, _path, { signal }) =>
        new Promise((_, reject) => {
          signal.addEventListener("abort", () => reject(signal.reason as Error));
          begun();
        }),
    },
  });
  const taking = slow.take(sandboxId, name, testUser).catch((error: unknown) => error);
  await saving;
  await slow.close();
  expect(await taking).toMatchObject({ code: "unavailable" });
  expect(await stored()).toEqual([]);
});
