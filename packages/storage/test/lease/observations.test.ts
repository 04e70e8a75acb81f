import { expect, test } from "vitest";
import type { LeaseDocument } from "../../src/lease/lease-document.ts";
import { Observations } from "../../src/lease/observations.ts";
import { skewedClock, Timeline } from "../support/lease/timeline.ts";

const owner = { id: "a", url: "", session: "aaaaaaaa", renewal: 1, ttlMs: 1000 };
const document: LeaseDocument = { version: 1, epoch: 1, owner, waiter: null, write: "wwwwwwww" };

test("a server that was never seen has its whole time left", () => {
  const observations = new Observations(skewedClock(new Timeline()));
  expect(observations.remainingMs("key", "owner", owner)).toBeGreaterThan(1000);
});

test("a renewal, another session and a longer time to live each start the time again", async () => {
  const timeline = new Timeline();
  const observations = new Observations(skewedClock(timeline));
  for (const change of [{}, { renewal: 2 }, { session: "bbbbbbbb" }, { ttlMs: 2000 }]) {
    const claimant = { ...owner, ...change };
    observations.note("key", { ...document, owner: claimant });
    expect(observations.remainingMs("key", "owner", claimant)).toBeGreaterThan(claimant.ttlMs);
    await timeline.advance(claimant.ttlMs * 2);
    observations.note("key", { ...document, owner: claimant });
    expect(observations.remainingMs("key", "owner", claimant)).toBe(0);
  }
});

test("memory is bounded, and a forgotten server has its whole time again", async () => {
  const timeline = new Timeline();
  const observations = new Observations(skewedClock(timeline));
  observations.note("first", document);
  await timeline.advance(5000);
  expect(observations.remainingMs("first", "owner", owner)).toBe(0);
  for (let index = 0; index < 10_000; index += 1) observations.note(`key-${index}`, document);
  expect(observations.remainingMs("first", "owner", owner)).toBeGreaterThan(1000);
});
