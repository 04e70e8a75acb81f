import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { IdleWatch } from "../../src/idle/idle-watch.ts";
import type { RunTally, TimerSlack } from "../../src/idle/timer-slack.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** Makes the slack of a container in which nothing happens. */
function quietSlack(): TimerSlack & { now: number; reads: number } {
  return {
    now: 0,
    reads: 0,
    allow(ms): void {
      this.now = ms;
    },
    remove(): void {
      this.now = 0;
    },
    [Symbol.dispose]: () => undefined,
    readRuns(): RunTally {
      this.reads += 1;
      return { runs: 0, ms: 0, waitMs: 0 };
    },
  };
}

test("all sandboxes get slack, however many, and a few at a time", async () => {
  const watch = new IdleWatch({ slackMs: 250 });
  const slacks = Array.from({ length: 300 }, quietSlack);
  for (const slack of slacks) watch.add().watch(async () => slack);
  const reads = (): number => slacks.reduce((sum, slack) => sum + slack.reads, 0);
  for (let tick = 0; tick < 100; tick += 1) {
    const before = reads();
    await vi.advanceTimersByTimeAsync(100);
    expect(reads() - before).toBeLessThanOrEqual(16);
  }
  expect(slacks.map(({ now }) => now)).toEqual(slacks.map(() => 250));
});

test("disabled slack checks no sandbox, and no timer runs without sandboxes", async () => {
  const find = vi.fn<() => Promise<TimerSlack | undefined>>();
  new IdleWatch({ slackMs: 0 }).add().watch(find);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(find).not.toHaveBeenCalled();
  const sandbox = new IdleWatch({ slackMs: 250 }).add();
  sandbox.watch(find);
  sandbox.leave();
  await vi.advanceTimersByTimeAsync(200);
  expect(vi.getTimerCount()).toBe(0);
});

test("a kernel that refuses slack is reported once, and sandboxes stay as they are", async () => {
  const warnings: Error[] = [];
  const listen = (warning: Error): number => warnings.push(warning);
  process.on("warning", listen);
  const watch = new IdleWatch({ slackMs: 250 });
  const refused = vi.fn<() => void>(() => {
    throw Object.assign(new Error("refused"), { code: "EPERM" });
  });
  const slacks = [quietSlack(), quietSlack()].map((slack) => ({ ...slack, allow: refused }));
  for (const slack of slacks) watch.add().watch(async () => slack);
  await vi.advanceTimersByTimeAsync(10_000);
  await vi.waitFor(() =>
    expect(warnings.map(({ message }) => message)).toEqual([expect.stringContaining("2 % of a core")]),
  );
  expect(refused).toHaveBeenCalledOnce();
  process.off("warning", listen);
});

test("an error that concerns one sandbox leaves the others their slack", async () => {
  const watch = new IdleWatch({ slackMs: 250 });
  const failed = vi.fn<() => void>(() => {
    throw Object.assign(new Error("too many open files"), { code: "EMFILE" });
  });
  const other = quietSlack();
  const allowed = vi.spyOn(other, "allow");
  watch.add().watch(async () => ({ ...quietSlack(), allow: failed }));
  watch.add().watch(async () => other);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(failed).toHaveBeenCalledOnce();
  expect(allowed).toHaveBeenCalled();
});
