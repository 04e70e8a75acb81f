import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { MountedObjectStore } from "../src/mounted-object-store.ts";
import { MemoryObjectStore } from "./support/memory-object-store.ts";
import { makeScratchDirectory } from "./support/scratch-directory.ts";
import { storeContract, type StorePlace } from "./support/store-contract.ts";

const content = Buffer.from("the bytes of a big object ".repeat(100_000));
const checksum = { sha256: createHash("sha256").update(content).digest("hex"), sizeBytes: content.length };

async function openPlace(): Promise<StorePlace> {
  const mount = await makeScratchDirectory();
  const store = new MountedObjectStore(new MountableStore(mount), mount);
  return {
    store,
    partBytes: 2 << 20,
    close: async () => {
      await store.close();
      await rm(mount, { recursive: true });
    },
  };
}

storeContract("mounted", openPlace, { hasFaults: false });

/** A bucket that shows its small objects in a directory, like a mount of it. */
class MountableStore extends MemoryObjectStore {
  readonly #mount: string;
  constructor(mount: string) {
    super();
    this.#mount = mount;
  }

  override async put(...input: Parameters<MemoryObjectStore["put"]>): ReturnType<MemoryObjectStore["put"]> {
    const info = await super.put(...input);
    const [key, data] = input;
    // This is only for the keys of a probe: a directory cannot have the file `a` beside the file `a/b`.
    if (key.startsWith("probe/")) {
      await mkdir(join(this.#mount, dirname(key)), { recursive: true });
      await writeFile(join(this.#mount, key), data);
    }
    return info;
  }
}

describe("a bucket with a mount", () => {
  let directory = "";
  let bucket = new MemoryObjectStore();
  let store = new MountedObjectStore(bucket, "/nowhere");
  const target = () => join(directory, "target");

  beforeEach(async () => {
    directory = await makeScratchDirectory();
    bucket = new MemoryObjectStore();
    await mkdir(join(directory, "mount"));
    store = new MountedObjectStore(bucket, join(directory, "mount"));
  });
  afterEach(async () => {
    await rm(directory, { recursive: true });
  });

  test("reads a big object from the mount, without what the bucket appends to it", async () => {
    await writeFile(join(directory, "mount", "big"), Buffer.concat([content, Buffer.alloc(16, 1)]));
    await store.download("big", target(), checksum);
    expect((await readFile(target())).equals(content)).toBe(true);
  });

  test.for([
    { mounted: "another object", bytes: Buffer.alloc(content.length) },
    { mounted: "the beginning of it", bytes: content.subarray(0, 1_000) },
    { mounted: "nothing", bytes: undefined },
  ])("asks the bucket when the mount has $mounted", async ({ bytes }) => {
    await writeFile(join(directory, "source"), content);
    if (bytes !== undefined) await writeFile(join(directory, "mount", "big"), bytes);
    await store.upload("big", join(directory, "source"), checksum);
    await store.download("big", target(), checksum);
    expect((await readFile(target())).equals(content)).toBe(true);
    expect((await readdir(directory)).toSorted()).toEqual(["mount", "source", "target"]);
  });

  test("reports the bucket's error when neither has the object", async () => {
    await expect(store.download("big", target(), checksum)).rejects.toMatchObject({ code: "not_found" });
    expect(await readdir(directory)).toEqual(["mount"]);
  });

  test("refuses a mount that does not show the bucket's objects", async () => {
    await expect(store.probe()).rejects.toMatchObject({ code: "unsupported" });
  });
});
