import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandboxError, SandboxId, SnapshotName } from "@atoll/protocol";
import { FileObjectStore, type ObjectStore } from "@atoll/storage";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { NewEvent } from "../../src/events/event-journal.ts";
import type { SnapshotLibrary, SnapshotLibraryOptions } from "../../src/snapshots/snapshot-library.ts";
import { openTestLibrary, testEngine, testFiles } from "../support/test-library.ts";

const sandboxId = SandboxId.parse("s".repeat(20));
const name = SnapshotName.parse("tools");
const everybody = (): boolean => true;

let dir: string;
let store: ObjectStore;
let library: SnapshotLibrary;
let told: NewEvent[];

const open = (options: Partial<SnapshotLibraryOptions> = {}): Promise<SnapshotLibrary> =>
  openTestLibrary(dir, store, { tell: (event) => told.push(event), ...options });

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-snapshots-"));
  store = await FileObjectStore.open(join(dir, "store"));
  told = [];
  library = await open();
});
afterEach(async () => {
  await library.close();
  await store.close();
  await rm(dir, { recursive: true, force: true });
});

async function exported(): Promise<Buffer> {
  const { sizeBytes, pieces } = await library.export(name, everybody, new AbortController().signal);
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
  into.import(SnapshotName.parse(as), once(file), { owner: "other", signal: new AbortController().signal });

async function stored(): Promise<string[]> {
  const keys: string[] = [];
  for await (const { key } of store.list("snapshots/")) keys.push(key);
  return keys;
}

test("what is exported here is imported elsewhere as it was, and a sandbox can be made of it", async () => {
  const taken = await library.take(sandboxId, name, "me");
  const copy = await importing(await exported());
  expect(copy).toEqual({ ...taken, name: "copy", owner: "other" });
  const archive = await library.use(copy.name, everybody, async (source) => {
    expect(source.template).toBe("host");
    return readFile(await source.files.archive());
  });
  expect(testFiles.equals(archive)).toBe(true);
  expect(told.map(({ type }) => type)).toEqual(["snapshot.created", "snapshot.created"]);
  expect(await readdir(join(dir, "scratch"))).toEqual([]);
});

test("only who may see one has it", async () => {
  await library.take(sandboxId, name, "me");
  const sees = ({ owner }: { owner: string }): boolean => owner === "other";
  expect(await library.list(sees)).toEqual([]);
  await expect(library.get(name, sees)).rejects.toMatchObject({ code: "not_found" });
  await expect(library.remove(name, sees)).rejects.toMatchObject({ code: "not_found" });
  await expect(library.use(name, sees, async () => 0)).rejects.toMatchObject({ code: "not_found" });
  expect(await library.list(everybody)).toHaveLength(1);
});

test("of many that want a name one gets it, and nothing is left of the others", async () => {
  const taking = Array.from({ length: 8 }, () => library.take(sandboxId, name, "me"));
  const results = await Promise.allSettled(taking);
  expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  for (const result of results) {
    if (result.status === "rejected") expect(result.reason).toMatchObject({ code: "already_exists" });
  }
  expect(await stored()).toHaveLength(2);
  await library.remove(name, everybody);
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
    ["that goes on behind its end", (file) => Buffer.concat([file, Buffer.alloc(1)])],
    ["with another last byte", (file) => changed(file, file.byteLength - 1)],
    ["with another header", (file) => changed(file, 100)],
    ["of text", () => Buffer.from("any text\n")],
  ])("%s is refused, and nothing is left of it", async ([, change]) => {
    await library.take(sandboxId, name, "me");
    const before = await stored();
    await expect(importing(change(await exported()))).rejects.toMatchObject({ code: "invalid_argument" });
    expect(await stored()).toEqual(before);
    expect(await readdir(join(dir, "scratch"))).toEqual([]);
  });

  test("whose archive would harm whoever unpacks it is refused", async () => {
    await library.take(sandboxId, name, "me");
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

  test("that is larger than this server takes is refused before it is read", async () => {
    await library.take(sandboxId, name, "me");
    const small = await open({ maxBytes: 1024 });
    await expect(importing(await exported(), "copy", small)).rejects.toMatchObject({ code: "limit_reached" });
    await expect(small.take(sandboxId, SnapshotName.parse("x"), "me")).rejects.toMatchObject({
      code: "limit_reached",
    });
  });
});

test("without a store everything is refused, and the setting named", async () => {
  const none = await open({ store: undefined });
  none.start();
  const refusal = { code: "unsupported", details: { setting: "snapshotStore" } };
  await expect(none.take(sandboxId, name, "me")).rejects.toMatchObject(refusal);
  await expect(none.list(everybody)).rejects.toMatchObject(refusal);
  await expect(none.get(name, everybody)).rejects.toMatchObject(refusal);
  await expect(importing(Buffer.alloc(0), "copy", none)).rejects.toMatchObject(refusal);
});

test("a manifest that was changed by hand is not followed", async () => {
  await library.take(sandboxId, name, "me");
  const got = await store.get("snapshots/tools/manifest.json");
  const manifest = JSON.parse(got?.data.toString() ?? "") as object;
  await store.put("snapshots/tools/manifest.json", Buffer.from(JSON.stringify({ ...manifest, key: "sandboxes/x" })));
  await expect(library.get(name, everybody)).rejects.toMatchObject({ code: "unrestorable" });
  expect(await library.list(everybody)).toEqual([]);
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
    ["of the same length from somebody else", () => changed((bytes) => Buffer.alloc(bytes.byteLength, 1))],
    ["that is cut off", () => changed((bytes) => bytes.subarray(0, -1))],
    ["that goes on behind its end", () => changed((bytes) => Buffer.concat([bytes, bytes]))],
    ["that is empty", () => changed(() => Buffer.alloc(0))],
    ["that is missing", async () => store.remove(await archiveKey())],
  ])("%s makes no sandbox and no whole file, and can be removed", async ([, change]) => {
    await library.take(sandboxId, name, "me");
    const whole = await exported();
    await change();
    const using = library.use(name, everybody, async ({ files }) => files.archive());
    await expect(using).rejects.toMatchObject({ code: "unrestorable" });
    let bytes = 0;
    const exporting = async (): Promise<number> => {
      const { sizeBytes, pieces } = await library.export(name, everybody, new AbortController().signal);
      for await (const piece of pieces) bytes += piece.byteLength;
      return sizeBytes;
    };
    await expect(exporting()).rejects.toMatchObject({ code: "unrestorable" });
    expect(bytes).toBeLessThan(whole.byteLength);
    await library.remove(name, everybody);
    expect(await stored()).toEqual([]);
    expect(await readdir(join(dir, "scratch"))).toEqual([]);
  });

  test("that goes with its snapshot while it is used is that of one that is not there", async () => {
    await library.take(sandboxId, name, "me");
    const using = library.use(name, everybody, async ({ files }) => {
      await library.remove(name, everybody);
      return files.archive();
    });
    await expect(using).rejects.toMatchObject({ code: "not_found", details: { name } });
  });
});

test("a server that stops calls off what is under way, and nothing is left of it", async () => {
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
  const taking = slow.take(sandboxId, name, "me").catch((error: unknown) => error);
  await saving;
  await slow.close();
  expect(await taking).toMatchObject({ code: "unavailable" });
  expect(await stored()).toEqual([]);
});
