import type { Engine } from "@atoll/engine";
import { SandboxError, SandboxId } from "@atoll/protocol";
import { pino } from "pino";
import { expect, test } from "vitest";
import { RunDeadlines } from "../../src/persistence/run-deadlines.ts";

const id = SandboxId.parse("a".repeat(20));
const log = pino({ enabled: false });

/** Returns an engine with one sandbox that passes on each deadline. */
function engineWith(allowUntil: (atMs: number) => void): Pick<Engine, "get"> {
  const sandbox = { allowUntil: async (atMs: number) => allowUntil(atMs) };
  return { get: () => sandbox as unknown as ReturnType<Engine["get"]> };
}

test("a process that is suspended after reading its lease does not extend the time of a sandbox", async () => {
  const allowed: number[] = [];
  let nowMs = 1_000;
  const runDeadlines = new RunDeadlines({ engine: engineWith((atMs) => allowed.push(atMs)), log, nowMs: () => nowMs });
  const handle = {
    id,
    get remainingMs() {
      const remainingMs = 5_000;
      nowMs += 60_000;
      return remainingMs;
    },
  };
  await runDeadlines.extend(handle);
  expect(allowed).toEqual([6_000]);
});

test("a deadline that a launcher refuses is an error at first, and later leaves the earlier one in force", async () => {
  const unheeded = new SandboxError("timed_out", "Cannot set the deadline of a container");
  const failing = engineWith(() => {
    throw unheeded;
  });
  const runDeadlines = new RunDeadlines({ engine: failing, log });
  await expect(runDeadlines.extend({ id, remainingMs: 5 })).rejects.toBe(unheeded);
  await runDeadlines.extendFurther({ id, remainingMs: 5 });
  await runDeadlines.stop(id);
});

test.for(["not_found", "sandbox_ended"] as const)(
  "a sandbox that does not run (%s) needs no deadline",
  async (code) => {
    const gone = engineWith(() => {
      throw new SandboxError(code, "Cannot find it");
    });
    await new RunDeadlines({ engine: gone, log }).extend({ id, remainingMs: 5 });
  },
);
