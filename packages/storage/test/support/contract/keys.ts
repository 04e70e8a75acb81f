import { describe, expect, test } from "vitest";
import type { ObjectStore } from "../../../src/index.ts";
import type { OpenPlace } from "../store-contract.ts";
import { collect, expectCode, noSuchVersion, text, usePlace } from "./use-place.ts";

/** More objects than one page of any store has. */
const manyKeys = 1_050;
const atOnce = 32;

const refusedKeys = [
  "",
  "/",
  "/etc/passwd",
  "a/",
  "a//b",
  ".",
  "..",
  "../a",
  "a/../b",
  "a/..",
  "./a",
  "a/./b",
  "a\\b",
  "a b",
  "a\nb",
  "a\0b",
  "a?b",
  "a#b",
  "a%2fb",
  "a*",
  "a~",
  "ä",
  "a/".repeat(600) + "a",
  "x".repeat(201),
];

async function keysOf(store: ObjectStore, prefix: string): Promise<string[]> {
  const keys: string[] = [];
  for await (const info of store.list(prefix)) keys.push(info.key);
  return keys;
}

export function keys(open: OpenPlace): void {
  describe("keys", () => {
    const at = usePlace(open);

    test.for(refusedKeys)("the key %j is refused everywhere", async (key) => {
      const checksum = { sha256: "0".repeat(64), sizeBytes: 0 };
      const range = { offset: 0, length: 1 };
      await expectCode(at.store.put(key, text("x")), "invalid_argument");
      await expectCode(at.store.get(key), "invalid_argument");
      await expectCode(at.store.stat(key), "invalid_argument");
      await expectCode(at.store.remove(key), "invalid_argument");
      await expectCode(at.store.remove(key, { if: noSuchVersion }), "invalid_argument");
      await expectCode(at.store.read(key, range), "invalid_argument");
      await expectCode(at.store.upload(key, "/dev/null", checksum), "invalid_argument");
      await expectCode(at.store.download(key, "/nowhere/at/all", checksum), "invalid_argument");
      expect(await keysOf(at.store, "")).toEqual([]);
    });

    test("every kind of character that a key may have comes back as it was", async () => {
      const odd = ["a.b", "a=b", "a@b", "a+b", "a-b", "a_b", "AbC", "0", "...", ".hidden", "-", "x".repeat(200)];
      for (const key of odd) await at.store.put(`odd/${key}`, text(key));
      expect(await keysOf(at.store, "odd/")).toEqual(odd.map((key) => `odd/${key}`).toSorted());
      expect((await at.store.get("odd/a+b"))?.data.toString()).toBe("a+b");
    });

    test("a long key of many parts works", async () => {
      const key = Array.from({ length: 30 }, (_, index) => `part-${index}-${"x".repeat(20)}`).join("/");
      await at.store.put(key, text("deep"));
      expect((await at.store.get(key))?.data.toString()).toBe("deep");
      expect(await keysOf(at.store, "part-0-")).toEqual([key]);
      expect(await at.store.remove(key)).toBe(true);
      expect(await keysOf(at.store, "")).toEqual([]);
    });

    test("a list is in the order of the bytes of whole keys", async () => {
      const some = ["a", "a-b", "a.b", "a/b", "a/b-c", "a/b/c", "a/c", "a0", "aB", "ab", "b", "B"];
      for (const key of some.toReversed()) await at.store.put(key, text(key));
      expect(await keysOf(at.store, "")).toEqual(some.toSorted((one, two) => (one < two ? -1 : 1)));
    });

    test("a prefix is any beginning of a key", async () => {
      for (const key of ["ab/1", "ab/2", "ab", "abc/1", "abc", "b/1"]) await at.store.put(key, text(key));
      expect(await keysOf(at.store, "ab")).toEqual(["ab", "ab/1", "ab/2", "abc", "abc/1"]);
      expect(await keysOf(at.store, "ab/")).toEqual(["ab/1", "ab/2"]);
      expect(await keysOf(at.store, "ab/2")).toEqual(["ab/2"]);
      expect(await keysOf(at.store, "abc/")).toEqual(["abc/1"]);
      expect(await keysOf(at.store, "nothing/")).toEqual([]);
    });

    test.for(["/", "//", "../", "a//", "a/../", "./", "*", "a b"])("the prefix %j is refused", async (prefix) => {
      await expectCode(keysOf(at.store, prefix), "invalid_argument");
    });

    test("a list has the same information about each object as `stat`", async () => {
      await at.store.put("a/1", text("one"));
      await at.store.put("a/2", text("three"));
      const listed = await collect(at.store.list("a/"));
      const stats = [await at.store.stat("a/1"), await at.store.stat("a/2")];
      const essence = (info?: { key: string; sizeBytes: number; version: string }) =>
        info && [info.key, info.sizeBytes, info.version];
      expect(listed.map(essence)).toEqual(stats.map(essence));
    });

    test("a list can be left before its end, and stops when it is aborted", async () => {
      for (const key of ["a", "b", "c"]) await at.store.put(key, text(key));
      for await (const info of at.store.list("")) {
        expect(info.key).toBe("a");
        break;
      }
      const reason = new Error("enough");
      const stop = new AbortController();
      const walk = async () => {
        for await (const info of at.store.list("", { signal: stop.signal })) if (info.key === "a") stop.abort(reason);
      };
      await expect(walk()).rejects.toBe(reason);
    });

    test("a list of more objects than fit in a page has each of them once, in order", async () => {
      const all = Array.from({ length: manyKeys }, (_, index) => `many/${String(index % 7)}/${index}`);
      const queue = [...all];
      const work = async () => {
        for (let key = queue.pop(); key !== undefined; key = queue.pop()) await at.store.put(key, text(key));
      };
      await Promise.all(Array.from({ length: atOnce }, work));
      await at.store.put("other", text("x"));
      expect(await keysOf(at.store, "many/")).toEqual(all.toSorted((one, two) => (one < two ? -1 : 1)));
      expect(await keysOf(at.store, "many/3/")).toHaveLength(manyKeys / 7);
    });
  });
}
