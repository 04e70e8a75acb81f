import { rm } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { openStore, type StoreConfig } from "../src/index.ts";
import { makeScratchDirectory } from "./support/scratch-directory.ts";

describe("a store is opened by its configuration", () => {
  test("objects in a directory are there when it is opened again", async () => {
    const path = await makeScratchDirectory();
    try {
      const first = await openStore({ kind: "file", path });
      await first.put("a", Buffer.from("kept"));
      await first.close();
      const second = await openStore({ kind: "file", path });
      expect((await second.get("a"))?.data.toString()).toBe("kept");
      await second.close();
    } finally {
      await rm(path, { recursive: true });
    }
  });

  test("the place of a bucket says where it is, without its secrets", async () => {
    const credentials = { accessKeyId: "the-id", secretAccessKey: "the-secret" };
    const store = await openStore({ kind: "s3", bucket: "my-bucket", prefix: "atoll/a", credentials });
    expect(store.place).toContain("my-bucket");
    expect(store.place).toContain("atoll/a");
    expect(store.place).not.toContain("the-");
    await store.close();
  });

  test("the place of a bucket of Google says where it is", async () => {
    const store = await openStore({ kind: "gcs", bucket: "my-bucket", endpoint: "http://me:secret@localhost:1" });
    expect(store.place).toBe("gs://my-bucket/ at http://localhost:1");
    await store.close();
  });

  test("the place of a mounted bucket names both, with the prefix", async () => {
    const store = await openStore({ kind: "s3", bucket: "my-bucket", prefix: "atoll", mount: "/mnt/bucket" });
    expect(store.place).toContain("my-bucket");
    expect(store.place).toContain("/mnt/bucket/atoll");
    await store.close();
  });

  test.for([
    [{ kind: "floppy" }, "kind"],
    [{ kind: "file" }, "path"],
    [{ kind: "file", path: "relative" }, "path"],
    [{ kind: "file", path: "/a", bucket: "b" }, "bucket"],
    [{ kind: "s3" }, "bucket"],
    [{ kind: "s3", bucket: "../up" }, "bucket"],
    [{ kind: "s3", bucket: "b12", prefix: "../up" }, "prefix"],
    [{ kind: "s3", bucket: "b12", prefix: "a/./b" }, "prefix"],
    [{ kind: "s3", bucket: "b12", prefix: "/a" }, "prefix"],
    [{ kind: "s3", bucket: "b12", prefix: "a/" }, "prefix"],
    [{ kind: "s3", bucket: "b12", endpoint: "file:///etc" }, "endpoint"],
    [{ kind: "s3", bucket: "b12", mount: "here" }, "mount"],
    [{ kind: "s3", bucket: "b12", pieceBytes: 1 }, "pieceBytes"],
    [{ kind: "s3", bucket: "b12", Region: "x" }, "Region"],
    [{ kind: "gcs" }, "bucket"],
    [{ kind: "gcs", bucket: "b12", keyFile: "key.json" }, "keyFile"],
    [{ kind: "gcs", bucket: "b12", region: "x" }, "region"],
  ] as const)("%j is refused, naming %s", async ([config, name]) => {
    const open = openStore(config as unknown as StoreConfig);
    await expect(open).rejects.toMatchObject({ code: "invalid_argument", message: expect.stringContaining(name) });
  });
});
