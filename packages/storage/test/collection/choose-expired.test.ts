import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { chooseExpired, type DatedManifest } from "../../src/collection/choose-expired.ts";

const manifest = (key: string, createdAtMs: number, more: Partial<DatedManifest> = {}): DatedManifest => ({
  key,
  line: "line",
  createdAtMs,
  needs: [],
  ...more,
});
const keys = (manifests: readonly DatedManifest[]) => manifests.map(({ key }) => key);

describe("choosing among the manifests of a line", () => {
  const five = [1, 2, 3, 4, 5].map((n) => manifest(`m${n}`, n * 100));

  test("the newest are kept, as many as the policy says", () => {
    expect(keys(chooseExpired(five, { keepLast: 2 }, 1_000))).toEqual(["m1", "m2", "m3"]);
  });

  test("the newest one is kept, whatever the policy says", () => {
    expect(keys(chooseExpired(five, { keepLast: 0 }, 1e12))).toEqual(["m1", "m2", "m3", "m4"]);
  });

  test("young ones are kept, however many there are", () => {
    expect(keys(chooseExpired(five, { keepLast: 1, keepForMs: 250 }, 550))).toEqual(["m1", "m2"]);
  });

  test("pinned ones are kept", () => {
    const pinned = [manifest("m0", 0, { isPinned: true }), ...five];
    expect(keys(chooseExpired(pinned, { keepLast: 1 }, 1_000))).toEqual(["m1", "m2", "m3", "m4"]);
  });

  test("a manifest that a kept one needs, directly or not, is kept, also of another line", () => {
    const fork = manifest("fork", 50, { line: "other", needs: ["m3"] });
    const chain = five.map((each) => (each.key === "m3" ? { ...each, needs: ["m1", "part"] } : each));
    expect(keys(chooseExpired([...chain, fork], { keepLast: 1 }, 1_000))).toEqual(["m2", "m4"]);
  });

  test("manifests that need each other are removed with the line that keeps neither", () => {
    const circle = [manifest("a", 1, { needs: ["b"] }), manifest("b", 2, { needs: ["a"] }), manifest("c", 3)];
    expect(keys(chooseExpired(circle, { keepLast: 1 }, 10))).toEqual(["a", "b"]);
  });
});

test("no kept manifest needs a removed one, and each line keeps one", () => {
  const names = ["a", "b", "c", "d", "e", "f", "g", "h"];
  const anyManifests = fc.uniqueArray(
    fc.record({
      key: fc.constantFrom(...names),
      line: fc.constantFrom("one", "two", "three"),
      createdAtMs: fc.integer({ min: 0, max: 10 }),
      needs: fc.array(fc.constantFrom(...names, "part"), { maxLength: 3 }),
      isPinned: fc.boolean(),
    }),
    { selector: ({ key }) => key },
  );
  const anyPolicy = fc.record(
    { keepLast: fc.integer({ min: 0, max: 4 }), keepForMs: fc.integer({ min: 0, max: 10 }) },
    { requiredKeys: ["keepLast"] },
  );
  fc.assert(
    fc.property(anyManifests, anyPolicy, (manifests, policy) => {
      const gone = new Set(keys(chooseExpired(manifests, policy, 10)));
      const remaining = manifests.filter(({ key }) => !gone.has(key));
      expect(remaining.flatMap(({ needs }) => needs).filter((need) => gone.has(need))).toEqual([]);
      expect(new Set(remaining.map(({ line }) => line))).toEqual(new Set(manifests.map(({ line }) => line)));
      expect(manifests.filter(({ key, isPinned }) => isPinned && gone.has(key))).toEqual([]);
    }),
  );
});
