import { SandboxTimeouts } from "@atoll/protocol";
import { pino } from "pino";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { IdleClock } from "../../src/manager/idle-clock.ts";
import type { ManagedSandbox } from "../../src/manager/managed-sandbox.ts";
import type { PauseResume } from "../../src/manager/pause-resume.ts";
import type { ServerAudit } from "../../src/manager/server-audit.ts";
import { timeOut } from "../../src/manager/time-out.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** A sandbox at the end of its lifetime that cannot be killed before the disk has space again. */
function onFullDisk() {
  const timeouts = SandboxTimeouts.parse({ lifetimeMs: 3_600_000 });
  const seen = { attempts: 0, isFull: true, audited: [] as string[] };
  const clock = new IdleClock({
    startedAtMs: Date.now(),
    timeouts: () => timeouts,
    runTimeMs: () => undefined,
    hasWork: () => false,
    findsWork: async () => false,
    onTimeout: (which) => {
      // The object has only what a timeout uses.
      const managed = { id: "sandbox", facts: { timeouts }, clock } as unknown as ManagedSandbox;
      void timeOut(managed, which, {
        pauseResume: {} as PauseResume,
        kill: async () => {
          seen.attempts += 1;
          if (seen.isFull) throw new Error("no space");
        },
        audit: { record: ({ result }: { result: string }) => seen.audited.push(result) } as unknown as ServerAudit,
        log: pino({ enabled: false }),
      });
    },
  });
  return { clock, seen };
}

test("a kill that failed at a timeout is retried soon, and not after another lifetime", async () => {
  const { seen } = onFullDisk();
  await vi.advanceTimersByTimeAsync(3_600_000 + 60_000);
  expect([seen.attempts, seen.audited]).toEqual([3, []]);
  seen.isFull = false;
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect([seen.attempts, seen.audited]).toEqual([4, ["ok"]]);
});

test("nothing is retried for a sandbox that this server has released", async () => {
  const { clock, seen } = onFullDisk();
  await vi.advanceTimersByTimeAsync(3_600_000);
  clock.close();
  clock.retry("lifetime");
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect(seen.attempts).toBe(1);
});
