import type { Engine } from "@atoll/engine";
import { SandboxError, SandboxId } from "@atoll/protocol";
import { pino } from "pino";
import { expect, test } from "vitest";
import { RunDeadlines } from "../../src/persistence/run-deadlines.ts";

const id = SandboxId.parse("a".repeat(20));
const log = pino({ enabled: false });

/** An engine with one sandbox, and what it was allowed. */
function engineWith(allowUntil: (atMs: number) => void): Pick<Engine, "get"> {
  const sandbox = { allowUntil: async (atMs: number) => allowUntil(atMs) };
  return { get: () => sandbox as unknown as ReturnType<Engine["get"]> };
}

test("a process that is stopped after it has asked its lease lets a sandbox run no longer for that", async () => {
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

test("a time that a launcher does not go by is refused at first, and later leaves the one before in force", async () => {
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
  "of a sandbox that does not run (%s) nothing is expected",
  async (code) => {
    const gone = engineWith(() => {
      throw new SandboxError(code, "Cannot find it");
    });
    await new RunDeadlines({ engine: gone, log }).extend({ id, remainingMs: 5 });
  },
);
