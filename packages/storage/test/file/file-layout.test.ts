import { createHash } from "node:crypto";
import { mkdir, readdir, rm, stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FileObjectStore } from "../../src/index.ts";
import { makeScratchDirectory } from "../support/scratch-directory.ts";

const bytes = (text: string) => Buffer.from(text);

describe("a file store", () => {
  let path = "";
  const stores: FileObjectStore[] = [];
  async function open(at = path): Promise<FileObjectStore> {
    const store = await FileObjectStore.open(at);
    stores.push(store);
    return store;
  }

  beforeEach(async () => {
    path = await makeScratchDirectory();
  });
  afterEach(async () => {
    await Promise.all(stores.splice(0).map((store) => store.close()));
    await rm(path, { recursive: true });
  });

  test("reports that the bytes of an object were deleted by hand, and can replace and remove it", async () => {
    const store = await open();
    const info = await store.put("a", bytes("lost"));
    await rm(join(path, "objects", "a~", info.version));
    await expect(store.get("a")).rejects.toMatchObject({ code: "storage_failed" });
    await expect(store.stat("a")).rejects.toMatchObject({ code: "storage_failed" });
    await store.put("a", bytes("new"), { if: info.version });
    expect((await store.get("a"))?.data.toString()).toBe("new");
    await rm(join(path, "objects", "a~", (await store.stat("a"))?.version ?? ""));
    expect(await store.remove("a")).toBe(true);
  });

  test("reports names in a head that no store makes, at once", async () => {
    const store = await open();
    await store.put("a", bytes("x"));
    await writeFile(join(path, "objects", "a~", "head", "notes.txt"), "");
    await expect(store.get("a")).rejects.toMatchObject({ code: "storage_failed" });
    await expect(store.put("a", bytes("y"))).rejects.toMatchObject({ code: "storage_failed" });
  });

  test("reports a file in the place of a directory", async () => {
    const store = await open();
    await writeFile(join(path, "objects", "a"), "");
    await expect(store.put("a/b", bytes("x"))).rejects.toMatchObject({ code: "storage_failed" });
  });

  test("refuses a directory with the layout of a later version", async () => {
    await writeFile(join(path, "layout"), "atoll objects 2\n");
    await expect(open()).rejects.toMatchObject({ code: "unsupported" });
  });

  test("can be opened by many processes at once when it is new", async () => {
    const opened = await Promise.all(Array.from({ length: 10 }, () => open()));
    await Promise.all(opened.map((store, index) => store.put(`key-${index}`, bytes("x"))));
    expect((await readdir(path)).toSorted()).toEqual(["layout", "objects", "writers"]);
  });

  test.for(["", "relative/path", "/with/\0"])("is not opened at %j", async (at) => {
    await expect(open(at)).rejects.toMatchObject({ code: "invalid_argument" });
  });

  test("works at a path that is longer than the address of a socket", async () => {
    const deep = join(path, "x".repeat(100), "y".repeat(100));
    const store = await open(deep);
    await store.put("a", bytes("deep"));
    expect((await store.get("a"))?.data.toString()).toBe("deep");
    expect(await store.sweep()).toBe(0);
  });

  test("keeps holes in files as holes", async () => {
    const store = await open();
    const sizeBytes = 8 << 20;
    const file = join(path, "source");
    await writeFile(file, "at the start");
    await truncate(file, sizeBytes);
    const content = Buffer.alloc(sizeBytes);
    content.write("at the start");
    const checksum = { sha256: createHash("sha256").update(content).digest("hex"), sizeBytes };
    const info = await store.upload("holes", file, checksum);
    const stored = await stat(join(path, "objects", "holes~", info.version));
    expect(stored.size).toBe(sizeBytes);
    expect(stored.blocks * 512).toBeLessThanOrEqual(1 << 20);
    await store.download("holes", join(path, "copy"), checksum);
  });

  test("leaves no directories of removed objects", async () => {
    const store = await open();
    await store.put("a/b/c/d", bytes("x"));
    await store.put("a/e", bytes("x"));
    await store.remove("a/b/c/d");
    expect(await readdir(join(path, "objects", "a"))).toEqual(["e~"]);
    await mkdir(join(path, "objects", "left", "by", "a~", "head"), { recursive: true });
    await mkdir(join(path, "objects", "left", "empty"), { recursive: true });
    await store.sweep();
    expect(await readdir(join(path, "objects"))).toEqual(["a"]);
    await store.remove("a/e");
    await store.sweep();
    expect(await readdir(join(path, "objects"))).toEqual([]);
  });

  test("ignores files of others among its objects", async () => {
    const store = await open();
    await store.put("a/b", bytes("x"));
    const objects = join(path, "objects");
    await mkdir(join(objects, "of others", "b~"), { recursive: true });
    await mkdir(join(objects, "theirs"));
    const foreign = ["notes.txt", "notes.txt~", "theirs/data", "a/b.bak", "a/b.bak~", "of others/b~/head"];
    for (const name of foreign) await writeFile(join(objects, name), "");
    const keys: string[] = [];
    for await (const { key } of store.list("")) keys.push(key);
    expect(keys).toEqual(["a/b"]);
    expect(await store.sweep()).toBe(0);
    for (const name of foreign) expect((await stat(join(objects, name))).isFile()).toBe(true);
  });

  test("has no socket among the writers once it is closed", async () => {
    const store = await open();
    await store.put("a", bytes("x"));
    expect(await readdir(join(path, "writers"))).toHaveLength(1);
    await store.close();
    expect(await readdir(join(path, "writers"))).toEqual([]);
    await store.put("a", bytes("y"));
    expect((await store.get("a"))?.data.toString()).toBe("y");
  });
});
