import { truncate } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { maxSmallObjectBytes } from "../../../src/index.ts";
import type { OpenPlace } from "../store-contract.ts";
import { type SourceFile, useDesk } from "./source-file.ts";
import { collect, expectCode, noSuchVersion, race, readAll, text, usePlace } from "./use-place.ts";

const wrongSha256 = "0".repeat(64);

export function bigObjects(open: OpenPlace): void {
  describe("big objects", () => {
    const at = usePlace(open);
    const desk = useDesk();

    /** Two whole pieces and a part of a third. */
    const bigBytes = () => 2 * (at.place.partBytes ?? 8 << 20) + 12_345;
    const wanted = (file: SourceFile) => ({ sha256: file.sha256, sizeBytes: file.sizeBytes });

    test("a file of several pieces comes back as it was", async () => {
      const file = await desk.source("in", bigBytes());
      const uploaded = await at.store.upload("big", file.path, wanted(file));
      expect(uploaded).toMatchObject({ key: "big", sizeBytes: file.sizeBytes });
      expect(await at.store.stat("big")).toMatchObject({ sizeBytes: file.sizeBytes, version: uploaded.version });
      await at.store.download("big", desk.path("out"), wanted(file));
      expect((await desk.read("out")).equals(file.content)).toBe(true);
      expect(await desk.names()).toEqual(["in", "out"]);
    });

    test.for([0, 1, 65_537])("a file of %i bytes comes back as it was", async (sizeBytes) => {
      const file = await desk.source("in", sizeBytes);
      await at.store.upload("small", file.path, wanted(file));
      await at.store.download("small", desk.path("out"), wanted(file));
      expect((await desk.read("out")).equals(file.content)).toBe(true);
    });

    test("`get` reads an uploaded object, and `download` one that was put", async () => {
      const file = await desk.source("in", 1_000);
      await at.store.upload("uploaded", file.path, wanted(file));
      expect((await at.store.get("uploaded"))?.data.equals(file.content)).toBe(true);
      await at.store.put("put", file.content);
      await at.store.download("put", desk.path("out"), wanted(file));
      expect((await desk.read("out")).equals(file.content)).toBe(true);
    });

    test("`get` refuses an object that is too big for it", async () => {
      const file = await desk.source("in", maxSmallObjectBytes + 1);
      await at.store.upload("big", file.path, wanted(file));
      await expectCode(at.store.get("big"), "invalid_argument");
    });

    test("a range across pieces has the bytes of the file", async () => {
      const file = await desk.source("in", bigBytes());
      await at.store.upload("big", file.path, wanted(file));
      const offset = (at.place.partBytes ?? 8 << 20) - 1_000;
      const piece = await readAll(await at.store.read("big", { offset, length: 300_000 }));
      expect(piece.equals(file.content.subarray(offset, offset + 300_000))).toBe(true);
    });

    test("a read that is left early or aborted ends", async () => {
      const file = await desk.source("in", bigBytes());
      await at.store.upload("big", file.path, wanted(file));
      const whole = { offset: 0, length: file.sizeBytes };
      for await (const chunk of await at.store.read("big", whole)) {
        expect(chunk.length).toBeGreaterThan(0);
        break;
      }
      const reason = new Error("enough");
      const stop = new AbortController();
      const reading = async () => {
        for await (const _chunk of await at.store.read("big", whole, { signal: stop.signal })) stop.abort(reason);
      };
      await expect(reading()).rejects.toBe(reason);
    });

    test("an upload reports its progress, up to its end", async () => {
      const file = await desk.source("in", bigBytes());
      const reported: number[] = [];
      const onProgress = (storedBytes: number) => reported.push(storedBytes);
      await at.store.upload("big", file.path, { ...wanted(file), onProgress });
      expect(reported.length).toBeGreaterThan(1);
      expect(reported).toEqual(reported.toSorted((one, two) => one - two));
      expect(reported.at(-1)).toBe(file.sizeBytes);
    });

    test("an upload with another checksum is refused, and what was there stays", async () => {
      const file = await desk.source("in", bigBytes());
      const wrong = { sha256: wrongSha256, sizeBytes: file.sizeBytes };
      await expect(at.store.upload("new", file.path, wrong)).rejects.toMatchObject({
        code: "storage_failed",
        details: { expected: wrong, actual: wanted(file) },
      });
      expect(await at.store.stat("new")).toBeUndefined();
      const before = await at.store.put("old", text("kept"));
      await expectCode(at.store.upload("old", file.path, wrong), "storage_failed");
      expect((await at.store.get("old"))?.info.version).toBe(before.version);
      expect(await collect(at.store.list(""))).toHaveLength(1);
    });

    test.for([-1, 1])("an upload of a file whose size is off by %i is refused", async (offBy) => {
      const file = await desk.source("in", 100_000);
      const wrong = { sha256: file.sha256, sizeBytes: file.sizeBytes + offBy };
      await expectCode(at.store.upload("new", file.path, wrong), "storage_failed");
      expect(await at.store.stat("new")).toBeUndefined();
    });

    test("an upload of a file that shrinks during it is refused", async () => {
      const file = await desk.source("in", bigBytes());
      await truncate(file.path, file.sizeBytes - 1);
      await expectCode(at.store.upload("new", file.path, wanted(file)), "storage_failed");
      expect(await at.store.stat("new")).toBeUndefined();
    });

    test("a path that is not a file is refused", async () => {
      const checksum = { sha256: wrongSha256, sizeBytes: 0 };
      await expectCode(at.store.upload("new", desk.path("nothing"), checksum), "invalid_argument");
      await expectCode(at.store.upload("new", desk.path("."), checksum), "invalid_argument");
      await expectCode(at.store.upload("new", "/dev/zero", checksum), "invalid_argument");
      expect(await at.store.stat("new")).toBeUndefined();
    });

    test.for([
      { sha256: "xyz", sizeBytes: 0 },
      { sha256: "A".repeat(64), sizeBytes: 0 },
      { sha256: wrongSha256, sizeBytes: -1 },
      { sha256: wrongSha256, sizeBytes: 0.5 },
    ])("the checksum $sha256 of $sizeBytes bytes is refused as malformed", async (checksum) => {
      const file = await desk.source("in", 1);
      await expectCode(at.store.upload("new", file.path, checksum), "invalid_argument");
      await expectCode(at.store.download("new", desk.path("out"), checksum), "invalid_argument");
    });

    test("an upload that is aborted in the middle leaves nothing visible", async () => {
      const file = await desk.source("in", bigBytes());
      const reason = new Error("no longer wanted");
      const stop = new AbortController();
      const onProgress = (storedBytes: number) => {
        if (storedBytes > 0) stop.abort(reason);
      };
      const upload = at.store.upload("new", file.path, { ...wanted(file), onProgress, signal: stop.signal });
      await expect(upload).rejects.toBe(reason);
      expect(await at.store.stat("new")).toBeUndefined();
      expect(await collect(at.store.list(""))).toEqual([]);
      await at.store.upload("new", file.path, { ...wanted(file), if: "absent" });
    });

    test("an upload obeys its condition", async () => {
      const file = await desk.source("in", bigBytes());
      const first = await at.store.upload("a", file.path, { ...wanted(file), if: "absent" });
      await expectCode(at.store.upload("a", file.path, { ...wanted(file), if: "absent" }), "conflict");
      await expectCode(at.store.upload("a", file.path, { ...wanted(file), if: noSuchVersion }), "conflict");
      const second = await at.store.upload("a", file.path, { ...wanted(file), if: first.version });
      expect(second.version).not.toBe(first.version);
      expect((await at.store.stat("a"))?.version).toBe(second.version);
    });

    test("of ten uploads of one new object exactly one succeeds", async () => {
      const other = (await at.place.another?.()) ?? at.store;
      const files = await Promise.all(Array.from({ length: 10 }, (_, index) => desk.source(`in-${index}`, 300_000)));
      const { won, lost } = await race(
        files.map(async (file, index) => {
          const store = index % 2 === 0 ? at.store : other;
          return { file, info: await store.upload("a", file.path, { ...wanted(file), if: "absent" }) };
        }),
      );
      expect([won.length, lost]).toEqual([1, 9]);
      const got = await at.store.get("a");
      expect(won[0]?.file.content.equals(got?.data ?? Buffer.alloc(0))).toBe(true);
      expect(got?.info.version).toBe(won[0]?.info.version);
    });

    test("after several uploads to one key at once, one of them is there, whole", async () => {
      const files = await Promise.all([0, 1, 2].map((index) => desk.source(`in-${index}`, bigBytes())));
      const infos = await Promise.all(files.map((file) => at.store.upload("a", file.path, wanted(file))));
      const last = (await at.store.stat("a"))?.version;
      const winner = files[infos.findIndex((info) => info.version === last)];
      if (winner === undefined) throw new Error("The object comes from none of the uploads");
      await at.store.download("a", desk.path("out"), wanted(winner));
      expect((await desk.read("out")).equals(winner.content)).toBe(true);
    });

    test("a download with unexpected bytes leaves no file", async () => {
      const file = await desk.source("in", bigBytes());
      await at.store.upload("a", file.path, wanted(file));
      const wrong = { sha256: wrongSha256, sizeBytes: file.sizeBytes };
      await expect(at.store.download("a", desk.path("out"), wrong)).rejects.toMatchObject({
        code: "storage_failed",
        details: { expected: wrong, actual: wanted(file) },
      });
      const short = { sha256: file.sha256, sizeBytes: file.sizeBytes - 1 };
      await expectCode(at.store.download("a", desk.path("out"), short), "storage_failed");
      await expectCode(at.store.download("nothing", desk.path("out"), wanted(file)), "not_found");
      expect(await desk.names()).toEqual(["in"]);
    });

    test("a download does not change an existing file", async () => {
      const file = await desk.source("in", 1_000);
      const kept = await desk.source("out", 10);
      await at.store.upload("a", file.path, wanted(file));
      await expectCode(at.store.download("a", kept.path, wanted(file)), "already_exists");
      expect((await desk.read("out")).equals(kept.content)).toBe(true);
      expect(await desk.names()).toEqual(["in", "out"]);
    });

    test("a download that is aborted leaves no file", async () => {
      const file = await desk.source("in", bigBytes());
      await at.store.upload("a", file.path, wanted(file));
      const reason = new Error("no longer wanted");
      const stop = new AbortController();
      const download = at.store.download("a", desk.path("out"), { ...wanted(file), signal: stop.signal });
      stop.abort(reason);
      await expect(download).rejects.toBe(reason);
      expect(await desk.names()).toEqual(["in"]);
    });

    test("a sweep removes nothing that exists or is being uploaded", async () => {
      const file = await desk.source("in", bigBytes());
      await at.store.put("kept", text("kept"));
      let sweep: Promise<number> | undefined;
      const onProgress = () => {
        sweep ??= at.store.sweep({ isOurs: () => true });
      };
      await at.store.upload("big", file.path, { ...wanted(file), onProgress });
      expect(await sweep).toBe(0);
      expect((await at.store.get("kept"))?.data.toString()).toBe("kept");
      await at.store.download("big", desk.path("out"), wanted(file));
    });
  });
}
