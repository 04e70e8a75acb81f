import { describe, expect, test } from "vitest";
import { maxSmallObjectBytes } from "../../../src/index.ts";
import type { OpenPlace } from "../store-contract.ts";
import { expectCode, readAll, text, usePlace } from "./use-place.ts";

export function smallObjects(open: OpenPlace): void {
  describe("small objects", () => {
    const at = usePlace(open);

    test("`get` returns what was put", async () => {
      const data = Buffer.from(Array.from({ length: 512 }, (_, index) => index % 256));
      const put = await at.store.put("sandboxes/a/metadata.json", data);
      const got = await at.store.get("sandboxes/a/metadata.json");
      expect(got?.data.equals(data)).toBe(true);
      expect(got?.info).toMatchObject({ key: "sandboxes/a/metadata.json", sizeBytes: 512, version: put.version });
      expect(put).toMatchObject({ key: "sandboxes/a/metadata.json", sizeBytes: 512 });
    });

    test("`get` returns what was put, even if the caller changes those bytes later", async () => {
      const data = text("before");
      await at.store.put("a", data);
      data.write("after!");
      expect((await at.store.get("a"))?.data.toString()).toBe("before");
    });

    test("`stat` returns what `get` returns, without the bytes", async () => {
      await at.store.put("a", text("hello"));
      const got = await at.store.get("a");
      expect(await at.store.stat("a")).toEqual(got?.info);
    });

    test("the time of a write is the present time, apart from the store's clock", async () => {
      await at.store.put("a", text("hello"));
      const modifiedAtMs = (await at.store.stat("a"))?.modifiedAtMs ?? 0;
      expect(Math.abs(modifiedAtMs - Date.now())).toBeLessThan(5 * 60_000);
    });

    test("reading an object that does not exist gives undefined, and removing it gives false", async () => {
      expect(await at.store.get("nothing/here")).toBeUndefined();
      expect(await at.store.stat("nothing/here")).toBeUndefined();
      expect(await at.store.remove("nothing/here")).toBe(false);
      await expectCode(at.store.read("nothing/here", { offset: 0, length: 1 }), "not_found");
    });

    test("a removed object is gone, and its key can be used again", async () => {
      await at.store.put("a/b", text("one"));
      expect(await at.store.remove("a/b")).toBe(true);
      expect(await at.store.get("a/b")).toBeUndefined();
      expect(await at.store.remove("a/b")).toBe(false);
      await at.store.put("a/b", text("two"));
      expect((await at.store.get("a/b"))?.data.toString()).toBe("two");
    });

    test("a put without a condition replaces what is there", async () => {
      await at.store.put("a", text("a long first content"));
      await at.store.put("a", text("short"));
      expect((await at.store.get("a"))?.data.toString()).toBe("short");
    });

    test("every write has a version of its own, also of the same bytes and after a removal", async () => {
      const versions: string[] = [];
      for (let round = 0; round < 3; round += 1) {
        versions.push((await at.store.put("a", text("same"))).version);
        versions.push((await at.store.put("a", text("same"))).version);
        await at.store.remove("a");
      }
      expect(new Set(versions).size).toBe(6);
    });

    test("an object may be empty", async () => {
      const put = await at.store.put("empty", Buffer.alloc(0), { if: "absent" });
      expect(put.sizeBytes).toBe(0);
      expect((await at.store.get("empty"))?.data.length).toBe(0);
      expect((await at.store.stat("empty"))?.sizeBytes).toBe(0);
      expect(await readAll(await at.store.read("empty", { offset: 0, length: 10 }))).toHaveLength(0);
    });

    test("the largest small object can be put and got; a larger one is refused", async () => {
      const biggest = Buffer.alloc(maxSmallObjectBytes, 7);
      await at.store.put("big", biggest);
      expect((await at.store.get("big"))?.data.equals(biggest)).toBe(true);
      await expectCode(at.store.put("bigger", Buffer.alloc(maxSmallObjectBytes + 1)), "invalid_argument");
      expect(await at.store.stat("bigger")).toBeUndefined();
    });

    test("an object and one below its key live side by side", async () => {
      await at.store.put("a", text("1"));
      await at.store.put("a/b", text("2"));
      await at.store.put("a/b/c", text("3"));
      expect((await at.store.get("a"))?.data.toString()).toBe("1");
      expect((await at.store.get("a/b"))?.data.toString()).toBe("2");
      await at.store.remove("a/b");
      expect((await at.store.get("a/b/c"))?.data.toString()).toBe("3");
      await at.store.remove("a/b/c");
      expect((await at.store.get("a"))?.data.toString()).toBe("1");
    });

    test("readers see one whole version while others write", async () => {
      const contents = Array.from({ length: 20 }, (_, index) => `${index}:`.repeat(2_000));
      await at.store.put("a", text(contents[0] ?? ""));
      const seen: string[] = [];
      const written = new AbortController();
      const reading = (async () => {
        while (!written.signal.aborted) seen.push((await at.store.get("a"))?.data.toString() ?? "nothing");
      })();
      for (const content of contents) await at.store.put("a", text(content));
      written.abort();
      await reading;
      expect(seen.length).toBeGreaterThan(0);
      expect(seen.filter((content) => !contents.includes(content))).toEqual([]);
    });

    test.for([
      { offset: 0, length: 4, gives: "0123" },
      { offset: 3, length: 4, gives: "3456" },
      { offset: 8, length: 100, gives: "89" },
      { offset: 10, length: 5, gives: "" },
      { offset: 1_000, length: 5, gives: "" },
      { offset: 4, length: 0, gives: "" },
    ])("of ten bytes a range of $length from $offset gives '$gives'", async ({ offset, length, gives }) => {
      await at.store.put("digits", text("0123456789"));
      expect((await readAll(await at.store.read("digits", { offset, length }))).toString()).toBe(gives);
    });

    test.for([
      { offset: -1, length: 1 },
      { offset: 0, length: -1 },
      { offset: 0.5, length: 1 },
      { offset: 0, length: Number.NaN },
      { offset: Number.MAX_SAFE_INTEGER + 1, length: 1 },
    ])("a range of $length from $offset is refused", async (range) => {
      await at.store.put("digits", text("0123456789"));
      await expectCode(at.store.read("digits", range), "invalid_argument");
    });

    test("a call that is aborted before it begins does nothing", async () => {
      await at.store.put("a", text("kept"));
      const reason = new Error("no longer wanted");
      const signal = AbortSignal.abort(reason);
      await expect(at.store.put("a", text("new"), { signal })).rejects.toBe(reason);
      await expect(at.store.get("a", { signal })).rejects.toBe(reason);
      await expect(at.store.stat("a", { signal })).rejects.toBe(reason);
      await expect(at.store.remove("a", { signal })).rejects.toBe(reason);
      await expect(at.store.read("a", { offset: 0, length: 1 }, { signal })).rejects.toBe(reason);
      expect((await at.store.get("a"))?.data.toString()).toBe("kept");
    });
  });
}
