import { mkdtemp, readdir, rm, utimes } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { LostRuns } from "../../src/manager/lost-runs.ts";
import { idempotencyMark } from "../../src/support/idempotent-calls.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-lost-"));
});
afterEach(async () => {
  await rm(dir, { recursive: true, force: true });
});

const mark = idempotencyMark("key", "once", { argv: ["true"] });
const sameKey = idempotencyMark("key", "once", { argv: ["false"] });
const codeOf = (runs: LostRuns, asked = mark): unknown => {
  try {
    return runs.assertNotLost(asked);
  } catch (error) {
    return (error as { code: string }).code;
  }
};

test("a lost run is reported by every server until it is forgotten", async () => {
  const first = new LostRuns(dir);
  expect(codeOf(first)).toBeUndefined();
  await first.add(undefined);
  await first.add(mark);
  for (const runs of [first, new LostRuns(dir)]) {
    expect([codeOf(runs), codeOf(runs, sameKey)]).toEqual(["sandbox_ended", "invalid_argument"]);
  }
  await first.forget(sameKey);
  expect([codeOf(first), codeOf(new LostRuns(dir))]).toEqual([undefined, undefined]);
});

test("an old entry is removed at the next start", async () => {
  await new LostRuns(dir).add(mark);
  const [name = ""] = await readdir(dir);
  const yesterday = Date.now() / 1_000 - 86_401;
  await utimes(join(dir, name), yesterday, yesterday);
  expect(codeOf(new LostRuns(dir))).toBeUndefined();
  expect(await readdir(dir)).toEqual([]);
});
