import { isSandboxError } from "@atoll/protocol";
import { describe, expect, test } from "vitest";
import type { ObjectStore } from "../../../src/index.ts";
import type { OpenPlace } from "../store-contract.ts";
import { collect, expectCode, noSuchVersion, race, text, usePlace } from "./use-place.ts";

const racers = 10;

export function conditions(open: OpenPlace): void {
  describe("conditions", () => {
    const at = usePlace(open);

    /** Ten racers on two clients, so that a lock inside one client does not decide the race. */
    async function clients(): Promise<ObjectStore[]> {
      const other = (await at.place.another?.()) ?? at.store;
      return Array.from({ length: racers }, (_, index) => (index % 2 === 0 ? at.store : other));
    }

    test("a probe succeeds and leaves nothing behind", async () => {
      await at.store.probe();
      expect(await collect(at.store.list(""))).toEqual([]);
    });

    test("a create is refused when the object is there, and changes nothing", async () => {
      const first = await at.store.put("a", text("first"), { if: "absent" });
      await expectCode(at.store.put("a", text("second"), { if: "absent" }), "conflict");
      const got = await at.store.get("a");
      expect(got?.data.toString()).toBe("first");
      expect(got?.info.version).toBe(first.version);
    });

    test("a create works again after a removal", async () => {
      await at.store.put("a", text("first"), { if: "absent" });
      await at.store.remove("a");
      await at.store.put("a", text("second"), { if: "absent" });
      expect((await at.store.get("a"))?.data.toString()).toBe("second");
    });

    test("a replacement under the present version works, under any other it is refused", async () => {
      const first = await at.store.put("a", text("first"));
      const second = await at.store.put("a", text("second"), { if: first.version });
      await expectCode(at.store.put("a", text("third"), { if: first.version }), "conflict");
      await expectCode(at.store.put("a", text("third"), { if: noSuchVersion }), "conflict");
      const got = await at.store.get("a");
      expect(got?.data.toString()).toBe("second");
      expect(got?.info.version).toBe(second.version);
    });

    test("a replacement under a version is refused when there is no object", async () => {
      await expectCode(at.store.put("a", text("x"), { if: noSuchVersion }), "conflict");
      const gone = await at.store.put("a", text("first"));
      await at.store.remove("a");
      await expectCode(at.store.put("a", text("x"), { if: gone.version }), "conflict");
      expect(await at.store.get("a")).toBeUndefined();
    });

    test("the version of one object is not that of another", async () => {
      const first = await at.store.put("a", text("same"));
      await at.store.put("b", text("same"));
      await expectCode(at.store.put("b", text("x"), { if: first.version }), "conflict");
    });

    test("a version that the store never returned is a conflict, whatever its form", async () => {
      await at.store.put("a", text("kept"));
      for (const version of ["", "../b", "a/b", "*", '"x"', "x".repeat(5_000), "\0"]) {
        await expectCode(at.store.put("a", text("x"), { if: version as typeof noSuchVersion }), "conflict");
        await expectCode(at.store.remove("a", { if: version as typeof noSuchVersion }), "conflict");
      }
      expect((await at.store.get("a"))?.data.toString()).toBe("kept");
    });

    test("a removal under the present version works, under any other it is refused", async () => {
      const first = await at.store.put("a", text("first"));
      const second = await at.store.put("a", text("second"));
      await expectCode(at.store.remove("a", { if: first.version }), "conflict");
      expect((await at.store.get("a"))?.data.toString()).toBe("second");
      expect(await at.store.remove("a", { if: second.version })).toBe(true);
      await expectCode(at.store.remove("a", { if: second.version }), "conflict");
    });

    test("of ten that create one object exactly one succeeds", async () => {
      const stores = await clients();
      const { won, lost } = await race(
        stores.map(async (store, index) => ({
          index,
          info: await store.put("a", text(`racer ${index}`), { if: "absent" }),
        })),
      );
      expect([won.length, lost]).toEqual([1, racers - 1]);
      const got = await at.store.get("a");
      expect(got?.data.toString()).toBe(`racer ${won[0]?.index}`);
      expect(got?.info.version).toBe(won[0]?.info.version);
    });

    test("of ten that replace one version exactly one succeeds", async () => {
      const stores = await clients();
      const before = await at.store.put("a", text("before"));
      const { won, lost } = await race(
        stores.map(async (store, index) => ({
          index,
          info: await store.put("a", text(`racer ${index}`), { if: before.version }),
        })),
      );
      expect([won.length, lost]).toEqual([1, racers - 1]);
      const got = await at.store.get("a");
      expect(got?.data.toString()).toBe(`racer ${won[0]?.index}`);
      expect(got?.info.version).toBe(won[0]?.info.version);
    });

    test("of five that remove and five that replace one version exactly one succeeds", async () => {
      const stores = await clients();
      const before = await at.store.put("a", text("before"));
      const { won, lost } = await race(
        stores.map(async (store, index) =>
          index < racers / 2
            ? (await store.remove("a", { if: before.version })) && "removed"
            : (await store.put("a", text("replaced"), { if: before.version })) && "replaced",
        ),
      );
      expect([won.length, lost]).toEqual([1, racers - 1]);
      expect((await at.store.get("a"))?.data.toString()).toBe(won[0] === "removed" ? undefined : "replaced");
    });

    test("ten clients that count in one object lose no count", async () => {
      const stores = await clients();
      await at.store.put("counter", text("0"));
      async function count(store: ObjectStore): Promise<void> {
        for (;;) {
          const got = await store.get("counter");
          const next = Number(got?.data.toString()) + 1;
          try {
            await store.put("counter", text(String(next)), { if: got?.info.version ?? "absent" });
            return;
          } catch (error) {
            if (!isSandboxError(error, "conflict")) throw error;
          }
        }
      }
      await Promise.all(stores.map(count));
      expect((await at.store.get("counter"))?.data.toString()).toBe(String(racers));
    });

    test("ten puts without a condition all succeed, and the object is exactly one of them", async () => {
      const stores = await clients();
      const infos = await Promise.all(stores.map((store, index) => store.put("a", text(`racer ${index}`))));
      expect(new Set(infos.map((info) => info.version)).size).toBe(racers);
      const got = await at.store.get("a");
      const last = infos.findIndex((info) => info.version === got?.info.version);
      expect(got?.data.toString()).toBe(`racer ${last}`);
    });
  });
}
