import { isSandboxError } from "@atoll/protocol";
import { beforeEach, describe, expect, test } from "vitest";
import type { Fault, OpenPlace } from "../store-contract.ts";
import { useDesk } from "./source-file.ts";
import { collect, expectCode, text, usePlace } from "./use-place.ts";

/** Tests of what happens when the connection to a store fails. Stores without one have their own tests of failures. */
export function faults(open: OpenPlace): void {
  describe("faults", () => {
    const at = usePlace(open);
    const desk = useDesk();

    beforeEach(({ skip }) => {
      skip(at.place.inject === undefined, "nothing lies between this store and its objects");
    });

    const inject = (fault: Fault) => at.place.inject?.(fault);
    const heal = () => inject({ kind: "unavailable", times: 0 });

    test.for(["unavailable", "cut"] as const)("one call that is %s is retried without an error", async (kind) => {
      inject({ kind, times: 1 });
      await at.store.put("a", text("first"));
      inject({ kind, times: 1 });
      expect((await at.store.get("a"))?.data.toString()).toBe("first");
      inject({ kind, times: 1 });
      expect(await collect(at.store.list(""))).toHaveLength(1);
    });

    test.for(["unavailable", "cut"] as const)("an upload succeeds although pieces are %s", async (kind) => {
      const file = await desk.source("in", 2 * (at.place.partBytes ?? 8 << 20) + 12_345);
      const checksum = { sha256: file.sha256, sizeBytes: file.sizeBytes };
      let broken = 0;
      const onProgress = () => {
        broken += 1;
        if (broken <= 2) inject({ kind, times: 1 });
      };
      await at.store.upload("big", file.path, { ...checksum, onProgress });
      await at.store.download("big", desk.path("out"), checksum);
      expect(broken).toBeGreaterThan(0);
      expect((await desk.read("out")).equals(file.content)).toBe(true);
    });

    test("a store that stays away causes `unavailable`, and nothing has changed when it is back", async () => {
      const kept = await at.store.put("a", text("kept"));
      inject({ kind: "unavailable", times: Number.POSITIVE_INFINITY });
      await expectCode(at.store.put("a", text("new")), "unavailable");
      await expectCode(at.store.get("a"), "unavailable");
      await expectCode(at.store.stat("a"), "unavailable");
      await expectCode(at.store.remove("a"), "unavailable");
      await expectCode(collect(at.store.list("")), "unavailable");
      heal();
      expect((await at.store.get("a"))?.info.version).toBe(kept.version);
    });

    test("a create whose answer is lost never conflicts with itself", async () => {
      inject({ kind: "lost_answer", times: 1 });
      const outcome = await at.store.put("a", text("mine"), { if: "absent" }).then(
        () => "done",
        (error: unknown) => (isSandboxError(error) ? error.code : String(error)),
      );
      heal();
      expect(["done", "unavailable"]).toContain(outcome);
      expect((await at.store.get("a"))?.data.toString()).toBe("mine");
    });

    test("a replacement whose answer is lost never conflicts with itself", async () => {
      const before = await at.store.put("a", text("before"));
      inject({ kind: "lost_answer", times: 1 });
      const outcome = await at.store.put("a", text("mine"), { if: before.version }).then(
        () => "done",
        (error: unknown) => (isSandboxError(error) ? error.code : String(error)),
      );
      heal();
      expect(["done", "unavailable"]).toContain(outcome);
      expect((await at.store.get("a"))?.data.toString()).toBe("mine");
    });

    test("a conflict stays a conflict when a call before it was refused", async () => {
      await at.store.put("a", text("theirs"));
      inject({ kind: "unavailable", times: 1 });
      await expectCode(at.store.put("a", text("mine"), { if: "absent" }), "conflict");
    });

    test("a call can be aborted while the store stays away", async () => {
      inject({ kind: "unavailable", times: Number.POSITIVE_INFINITY });
      const reason = new Error("no longer wanted");
      const stop = new AbortController();
      const put = at.store.put("a", text("x"), { signal: stop.signal });
      stop.abort(reason);
      await expect(put).rejects.toBe(reason);
      heal();
    });
  });
}
