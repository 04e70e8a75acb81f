import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Sampler } from "../../src/monitor/sampler.ts";
import type { Enforcement, Subject, Usage, Violation } from "../../src/monitor/subject.ts";

const usage: Usage = { memoryBytes: 10, cpuMs: 0, uptimeMs: 0, diskBytes: 0, sentBytes: 0, receivedBytes: 0 };

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function open(keep = 5): { sampler: Sampler; violations: Violation[]; enforcements: Enforcement[] } {
  const sampler = new Sampler({ intervalMs: 1_000, keep });
  const violations: Violation[] = [];
  const enforcements: Enforcement[] = [];
  sampler.onViolation((violation) => violations.push(violation));
  sampler.onEnforcement((enforcement) => enforcements.push(enforcement));
  return { sampler, violations, enforcements };
}

const subjectOf = (read: Subject["read"], more: Partial<Subject> = {}): Subject => ({
  id: "s1",
  kind: "app",
  read,
  ...more,
});

describe("history", () => {
  test("it has a sample per interval, with the cores that were used in it, and no more than are kept", async () => {
    const { sampler } = open(3);
    let cpuMs = 0;
    sampler.add(subjectOf(() => ({ ...usage, cpuMs: (cpuMs += 500) })));
    await vi.advanceTimersByTimeAsync(10_000);
    const history = sampler.history("s1");
    expect(history).toMatchObject({ intervalMs: 1_000, kept: 3 });
    expect(history?.samples.map((sample) => [sample.cpuMs, sample.cpus])).toEqual([
      [4_000, 0.5],
      [4_500, 0.5],
      [5_000, 0.5],
    ]);
  });

  test("a counter that starts again counts from there, and sums of all subjects only grow", async () => {
    const { sampler } = open();
    const readings = [900, 100, 200];
    const watched = sampler.add(subjectOf(() => ({ ...usage, cpuMs: readings.shift() ?? 200, sentBytes: 7 })));
    await vi.advanceTimersByTimeAsync(3_000);
    expect(sampler.history("s1")?.samples.map(({ cpus }) => cpus)).toEqual([0, 0, 0.1]);
    expect(sampler.totals.sums).toEqual({ cpuMs: 1_100, sentBytes: 7, receivedBytes: 0 });
    expect(sampler.totals.now.memoryBytes).toBe(10);
    watched[Symbol.dispose]();
    expect([sampler.history("s1"), sampler.totals.now.memoryBytes]).toEqual([undefined, 0]);
    expect(sampler.totals.sums.cpuMs).toBe(1_100);
  });

  test("subjects that do not run, fail or hang have no samples, and do not delay others", async () => {
    const { sampler } = open();
    let asked = 0;
    sampler.add(subjectOf(() => undefined, { id: "paused" }));
    sampler.add(subjectOf(() => Promise.reject(new Error("gone")), { id: "gone" }));
    sampler.add(
      subjectOf(
        () => {
          asked += 1;
          return new Promise(() => undefined);
        },
        { id: "hangs" },
      ),
    );
    sampler.add(subjectOf(() => usage));
    await vi.advanceTimersByTimeAsync(3_000);
    const counts = ["paused", "gone", "hangs", "s1"].map((id) => sampler.history(id)?.samples.length);
    expect(counts).toEqual([0, 0, 0, 3]);
    expect(asked).toBe(1);
  });

  test("nothing is timed while there is nothing to sample", async () => {
    const { sampler } = open();
    expect(vi.getTimerCount()).toBe(0);
    const watched = sampler.add(subjectOf(() => usage));
    expect(vi.getTimerCount()).toBe(1);
    watched[Symbol.dispose]();
    await vi.advanceTimersByTimeAsync(1_000);
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe("limits", () => {
  test("80 % of a limit warn, all of it is a violation, and each is reported once until it is far again", async () => {
    const { sampler, violations } = open();
    let memoryBytes = 79;
    sampler.add(subjectOf(() => ({ ...usage, memoryBytes }), { limits: { memoryBytes: 100 } }));
    for (memoryBytes of [79, 80, 90, 100, 101, 85, 79, 81]) await vi.advanceTimersByTimeAsync(1_000);
    expect(violations.map(({ level, used, allowed, limit }) => [level, used, allowed, limit])).toEqual([
      ["soft", 80, 100, "memory"],
      ["hard", 100, 100, "memory"],
      ["soft", 81, 100, "memory"],
    ]);
    expect([...sampler.totals.violations.values()]).toEqual([
      { limit: "memory", level: "soft", count: 2 },
      { limit: "memory", level: "hard", count: 1 },
    ]);
  });

  test("a profile's own soft limit counts", async () => {
    const { sampler, violations } = open();
    sampler.add(subjectOf(() => ({ ...usage, processes: 5 }), { limits: { processes: 10 }, softLimit: 0.5 }));
    await vi.advanceTimersByTimeAsync(1_000);
    expect(violations).toMatchObject([{ level: "soft", limit: "processes", used: 5 }]);
  });

  test("a throttle is done once, and ends when all limits are far", async () => {
    const { sampler, enforcements } = open();
    const done: string[] = [];
    let [memoryBytes, diskBytes] = [100, 100];
    sampler.add(
      subjectOf(() => ({ ...usage, memoryBytes, diskBytes }), {
        limits: { memoryBytes: 100, diskBytes: 100 },
        onHardLimit: "throttle",
        enforce: async (action) => {
          done.push(action);
          return "it has less CPU time";
        },
        relax: async () => {
          done.push("relax");
        },
      }),
    );
    await vi.advanceTimersByTimeAsync(2_000);
    expect(enforcements).toMatchObject([
      { action: "throttle", result: "done", because: "it has less CPU time", violation: { limit: "memory" } },
    ]);
    memoryBytes = 1;
    await vi.advanceTimersByTimeAsync(1_000);
    expect(done).toEqual(["throttle"]);
    diskBytes = 1;
    await vi.advanceTimersByTimeAsync(1_000);
    expect(done).toEqual(["throttle", "relax"]);
  });

  test("an action is repeated while the limit stays hit, ever less often, and failures are reported", async () => {
    const { sampler, enforcements } = open();
    const atMs: number[] = [];
    let memoryBytes = 100;
    sampler.add(
      subjectOf(() => ({ ...usage, memoryBytes }), {
        limits: { memoryBytes: 100 },
        onHardLimit: "stop_process",
        enforce: async () => {
          atMs.push(Date.now());
          if (atMs.length === 1) throw new Error("nothing runs");
          return atMs.length === 2 ? undefined : "stopped it";
        },
      }),
    );
    await vi.advanceTimersByTimeAsync(30_000);
    expect(enforcements.map(({ result, because }) => [result, because])).toEqual([
      ["failed", "nothing runs"],
      ["done", "stopped it"],
    ]);
    expect(atMs.map((time, index) => time - (atMs[index - 1] ?? time))).toEqual([0, 5_000, 10_000]);
    memoryBytes = 1;
    await vi.advanceTimersByTimeAsync(600_000);
    expect(atMs).toHaveLength(3);
  });

  test("all of its CPU time is a violation that needs no action: the kernel keeps that limit", async () => {
    const { sampler, violations, enforcements } = open();
    let cpuMs = 0;
    sampler.add(
      subjectOf(() => ({ ...usage, cpuMs: (cpuMs += 1_000) }), {
        limits: { cpus: 1 },
        onHardLimit: "kill",
        enforce: async () => "killed",
      }),
    );
    await vi.advanceTimersByTimeAsync(5_000);
    expect([violations.length, enforcements]).toEqual([1, []]);
  });
});
