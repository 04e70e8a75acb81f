import { SandboxId } from "@atoll/protocol";
import { expect, test } from "vitest";
import { MetadataCache } from "../../src/persistence/metadata-cache.ts";
import type { SandboxMetadata } from "../../src/persistence/sandbox-metadata.ts";

const idOf = (number: number): SandboxId => SandboxId.parse(String(number).padStart(20, "0"));
const found = { isKilled: false } as SandboxMetadata;

function world(read: (id: SandboxId) => Promise<SandboxMetadata | undefined>) {
  const reads: SandboxId[] = [];
  const clock = { nowMs: 0 };
  const metadataCache = new MetadataCache({
    read: (id) => {
      reads.push(id);
      return read(id);
    },
    nowMs: () => clock.nowMs,
  });
  return { metadataCache, reads, clock };
}

test("many lookups at once and shortly after cost one read, also for a missing sandbox", async () => {
  const { metadataCache, reads, clock } = world(async () => undefined);
  expect(await Promise.all(Array.from({ length: 10 }, () => metadataCache.look(idOf(1))))).toContain(undefined);
  clock.nowMs = 999;
  await metadataCache.look(idOf(1));
  expect(reads).toHaveLength(1);
  clock.nowMs = 1_000;
  await metadataCache.look(idOf(1));
  expect(reads).toHaveLength(2);
});

test("metadata are remembered until they are forgotten, and a failed read is not remembered", async () => {
  let isBroken = false;
  const { metadataCache, clock } = world(async () => {
    if (isBroken) throw new Error("the store is away");
    return found;
  });
  await metadataCache.look(idOf(1));
  isBroken = true;
  clock.nowMs = 5_000;
  await expect(metadataCache.look(idOf(1))).rejects.toThrow("the store is away");
  expect(metadataCache.recall(idOf(1))).toBe(found);
  metadataCache.forget(idOf(1));
  expect(metadataCache.recall(idOf(1))).toBeUndefined();
});

test("a client that guesses many ids at once is refused, and few are remembered", async () => {
  let finish: () => void = () => undefined;
  const finished = new Promise<undefined>((resolve) => {
    finish = () => resolve(undefined);
  });
  const { metadataCache, reads } = world(() => finished);
  const looks = Array.from({ length: 100 }, (_, index) => metadataCache.look(idOf(index)));
  finish();
  const outcomes = await Promise.allSettled(looks);
  expect(reads).toHaveLength(64);
  const refused = outcomes.filter(({ status }) => status === "rejected");
  expect(refused).toHaveLength(36);
  expect(refused[0]).toMatchObject({ reason: { code: "unavailable" } });
});
