import { ContainerId, SandboxId } from "@atoll/protocol";
import { expect, test } from "vitest";
import { newContainerId, newSandboxId } from "../../src/support/ids.ts";

test("new ids have the form that ids have", () => {
  expect(SandboxId.safeParse(newSandboxId()).success).toBe(true);
  expect(ContainerId.safeParse(newContainerId()).success).toBe(true);
});

test("no two are the same, and every character occurs about as often as every other", () => {
  const ids = Array.from({ length: 20_000 }, newSandboxId);
  expect(new Set(ids).size).toBe(ids.length);
  const counts = new Map<string, number>();
  for (const character of ids.join("")) counts.set(character, (counts.get(character) ?? 0) + 1);
  expect(counts.size).toBe(36);
  const expected = (20_000 * 20) / 36;
  // This is seven standard deviations: a fair choice never exceeds it, and one that favours a few characters by a
  // seventh always does.
  const slack = 7 * Math.sqrt(expected);
  expect([...counts.values()].filter((count) => Math.abs(count - expected) > slack)).toEqual([]);
});
