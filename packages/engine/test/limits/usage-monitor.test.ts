import { SandboxLimits, type SandboxEventMessage, type SandboxId } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { readOrExplain, UsageMonitor } from "../../src/limits/usage-monitor.ts";

const MiB = 1024 * 1024;
const limits = SandboxLimits.parse({ diskBytes: 100 * MiB, memoryBytes: 100 * MiB, processes: 40, cpus: 2 });

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** A sandbox that uses what a test wants. It outlives its monitors, and its guest keeps the state that it got. */
class WatchedSandbox implements Disposable {
  usedBytes = 0;
  cpuMs: number | undefined = 0;
  throttledPeriods: number | undefined = 0;
  /** The CPU time that each question costs. */
  cpuMsPerCount = 0;
  memoryBytes = 0;
  processes = 1;
  othersProcesses = 0;
  oomKills = 0;
  cappedAt: number | undefined;
  measured = 0;
  answersCap = true;
  canBeMeasured = true;
  readonly failing = new Set<"usage" | "countProcesses">();
  readonly overruns: number[] = [];
  readonly #events: SandboxEventMessage[] = [];
  #monitor: UsageMonitor | undefined;

  /** Makes the next monitor, as another server, a resume or a refused pause does. */
  watch(): UsageMonitor {
    this.#monitor?.stop();
    this.#monitor = new UsageMonitor({
      sandboxId: "sb_test" as SandboxId,
      limits,
      layerBytes: 0,
      upperDirs: ["/upper"],
      cgroup: {
        usage: async () => {
          if (this.failing.has("usage")) throw new Error("The kernel does not say");
          const { memoryBytes, cpuMs, throttledPeriods } = this;
          return { memoryBytes, memoryPeakBytes: memoryBytes, cpuMs, throttledPeriods };
        },
        cpuMs: async () => {
          if (this.failing.has("usage")) throw new Error("The kernel does not say");
          return this.cpuMs;
        },
        oomKills: async () => this.oomKills,
      },
      channel: {
        capFileSize: async (bytes) => {
          if (!this.answersCap) throw new Error("The guest does not answer");
          this.cappedAt = bytes;
        },
        countProcesses: async () => {
          if (this.cpuMs !== undefined) this.cpuMs += this.cpuMsPerCount;
          if (this.failing.has("countProcesses")) throw new Error("The guest does not answer");
          return { processes: this.processes + this.othersProcesses, ofOneUser: this.processes };
        },
      },
      measureTree: async () => {
        this.measured += 1;
        if (!this.canBeMeasured) throw Object.assign(new Error("EIO: i/o error"), { code: "EIO" });
        return this.usedBytes;
      },
      emit: (event) => this.#events.push(event),
      onOverrun: (usedBytes) => this.overruns.push(usedBytes),
    });
    return this.#monitor;
  }

  /**
   * Lets it run for a while, in which it uses this much CPU time per second and is throttled in so many of ten periods.
   */
  async run(seconds: number, { cpuMsPerSecond = 100, throttled = 0 } = {}): Promise<void> {
    for (let second = 0; second < seconds; second += 1) {
      if (this.throttledPeriods !== undefined) this.throttledPeriods += throttled;
      if (this.cpuMs !== undefined) this.cpuMs += cpuMsPerSecond;
      await vi.advanceTimersByTimeAsync(1_000);
    }
  }

  /** Returns the events since the last call, as "near disk". */
  emitted(): string[] {
    return this.#events
      .splice(0)
      .flatMap((event) => ("limit" in event ? [`${event.type.replace("limit.", "")} ${event.limit}`] : []));
  }

  [Symbol.dispose](): void {
    this.#monitor?.stop();
  }
}

function watched(): WatchedSandbox {
  const sandbox = new WatchedSandbox();
  sandbox.watch();
  return sandbox;
}

describe("disk", () => {
  test("writes fail at the quota, and succeed again when enough was removed", async () => {
    using sandbox = watched();
    sandbox.usedBytes = 91 * MiB;
    await sandbox.run(2);
    expect(sandbox.emitted()).toEqual(["near disk"]);
    sandbox.usedBytes = 100 * MiB;
    await sandbox.run(2);
    expect([sandbox.cappedAt, sandbox.emitted()]).toEqual([0, ["hit disk"]]);
    sandbox.usedBytes = 96 * MiB;
    await sandbox.run(2);
    expect([sandbox.cappedAt, sandbox.emitted()]).toEqual([0, []]);
    sandbox.usedBytes = 95 * MiB;
    await sandbox.run(1);
    expect([sandbox.cappedAt, sandbox.emitted()]).toEqual([undefined, ["eased disk"]]);
  });

  test("a cap of an earlier monitor is lifted when there is space", async () => {
    using sandbox = watched();
    sandbox.usedBytes = 100 * MiB;
    await sandbox.run(2);
    expect(sandbox.cappedAt).toBe(0);
    sandbox.watch();
    sandbox.usedBytes = 1 * MiB;
    await sandbox.run(2);
    expect(sandbox.cappedAt).toBeUndefined();
  });

  test("a cap of an earlier monitor is lifted below the quota, also when the quota is near", async () => {
    using sandbox = watched();
    sandbox.cappedAt = 0;
    sandbox.usedBytes = 97 * MiB;
    await sandbox.run(2);
    expect(sandbox.cappedAt).toBeUndefined();
  });

  test("a cap that its guest did not confirm is set again", async () => {
    using sandbox = watched();
    await sandbox.run(2);
    sandbox.usedBytes = 100 * MiB;
    sandbox.answersCap = false;
    await sandbox.run(2);
    expect(sandbox.emitted()).toEqual([]);
    sandbox.answersCap = true;
    await sandbox.run(2);
    expect([sandbox.cappedAt, sandbox.emitted()]).toEqual([0, ["hit disk"]]);
  });

  test("writes fail when it cannot be measured again and again, and succeed as soon as it can", async () => {
    const warnings: Error[] = [];
    const listen = (warning: Error): number => warnings.push(warning);
    process.on("warning", listen);
    using sandbox = watched();
    sandbox.usedBytes = 97 * MiB;
    await sandbox.run(2);
    sandbox.emitted();
    sandbox.canBeMeasured = false;
    await sandbox.run(1);
    sandbox.canBeMeasured = true;
    await sandbox.run(1);
    sandbox.canBeMeasured = false;
    await sandbox.run(2);
    expect([sandbox.cappedAt, sandbox.emitted()]).toEqual([undefined, []]);
    await sandbox.run(8);
    expect([sandbox.cappedAt, sandbox.emitted()]).toEqual([0, ["hit disk"]]);
    sandbox.canBeMeasured = true;
    await sandbox.run(1);
    expect([sandbox.cappedAt, sandbox.emitted()]).toEqual([undefined, ["eased disk"]]);
    await vi.waitFor(() => expect(warnings).toHaveLength(1));
    expect(warnings[0]?.message).toContain("Cannot measure the files of sandbox sb_test");
    process.off("warning", listen);
  });

  test("a sandbox that is full when it can be measured again is reported as full", async () => {
    using sandbox = watched();
    sandbox.canBeMeasured = false;
    await sandbox.run(4);
    sandbox.canBeMeasured = true;
    sandbox.usedBytes = 100 * MiB;
    await sandbox.run(2);
    expect([sandbox.cappedAt, sandbox.emitted()]).toEqual([0, ["hit disk", "hit disk"]]);
  });

  test("a reading that cannot be measured is an error", async () => {
    using sandbox = watched();
    sandbox.canBeMeasured = false;
    await expect(sandbox.watch().read()).rejects.toMatchObject({
      code: "internal",
      message: expect.stringContaining("Cannot measure the files of sandbox sb_test"),
    });
  });

  test("a sandbox that still grows is ended, once", async () => {
    using sandbox = watched();
    sandbox.usedBytes = 200 * MiB;
    await sandbox.run(5);
    expect(sandbox.overruns).toEqual([200 * MiB]);
  });
});

describe("how often", () => {
  test("an idle sandbox is hardly ever measured", async () => {
    using sandbox = watched();
    sandbox.cpuMsPerCount = 50;
    await sandbox.run(300, { cpuMsPerSecond: 0 });
    expect(sandbox.measured).toBeLessThanOrEqual(11);
  });

  test("a sandbox that does little at a time is measured when that adds up", async () => {
    using sandbox = watched();
    await sandbox.run(2);
    sandbox.usedBytes = 100 * MiB;
    await sandbox.run(5, { cpuMsPerSecond: 1 });
    expect(sandbox.cappedAt).toBe(0);
  });

  test("a sandbox that writes without CPU time of its own is guarded, however often it is read", async () => {
    using sandbox = watched();
    const monitor = sandbox.watch();
    await sandbox.run(2);
    sandbox.usedBytes = 100 * MiB;
    for (let second = 0; second < 31; second += 1) {
      await monitor.read();
      await sandbox.run(1, { cpuMsPerSecond: 0 });
    }
    expect(sandbox.cappedAt).toBe(0);
  });

  test("a sandbox whose CPU time is unknown counts as busy", async () => {
    using sandbox = watched();
    sandbox.cpuMs = undefined;
    await sandbox.run(2);
    sandbox.usedBytes = 100 * MiB;
    await sandbox.run(2);
    expect(sandbox.cappedAt).toBe(0);
  });

  test("an idle sandbox is checked until its guest has confirmed its state", async () => {
    using sandbox = watched();
    sandbox.cappedAt = 0;
    sandbox.answersCap = false;
    await sandbox.run(5, { cpuMsPerSecond: 0 });
    sandbox.answersCap = true;
    await sandbox.run(1, { cpuMsPerSecond: 0 });
    expect(sandbox.cappedAt).toBeUndefined();
  });
});

test.for(["usage", "countProcesses"] as const)("the disk is guarded although %s fails", async (what) => {
  using sandbox = watched();
  sandbox.failing.add(what);
  sandbox.usedBytes = 100 * MiB;
  await sandbox.run(2);
  expect(sandbox.cappedAt).toBe(0);
});

test("memory that runs out is reported each time, and when there is enough again", async () => {
  using sandbox = watched();
  sandbox.memoryBytes = 94 * MiB;
  await sandbox.run(2);
  expect(sandbox.emitted()).toEqual(["near memory"]);
  sandbox.oomKills = 1;
  await sandbox.run(2);
  sandbox.oomKills = 2;
  await sandbox.run(2);
  expect(sandbox.emitted()).toEqual(["hit memory", "hit memory"]);
  sandbox.memoryBytes = 10 * MiB;
  await sandbox.run(2);
  expect(sandbox.emitted()).toEqual(["eased memory"]);
});

test("memory of which almost none is left counts as used up, before the kernel kills a process", async () => {
  using sandbox = watched();
  sandbox.memoryBytes = 95 * MiB;
  await sandbox.run(3);
  expect(sandbox.emitted()).toEqual(["hit memory"]);
  sandbox.memoryBytes = 90 * MiB;
  await sandbox.run(2);
  expect(sandbox.emitted()).toEqual([]);
  sandbox.memoryBytes = 79 * MiB;
  await sandbox.run(2);
  expect(sandbox.emitted()).toEqual(["eased memory"]);
});

test("what is read of an idle sandbox is not asked of its guest", async () => {
  using sandbox = watched();
  const monitor = sandbox.watch();
  sandbox.memoryBytes = 5 * MiB;
  expect(await monitor.peek()).toEqual({ memoryBytes: 5 * MiB, cpuMs: 0, processes: undefined, diskBytes: 0 });
  sandbox.processes = 3;
  sandbox.usedBytes = 7 * MiB;
  await sandbox.run(2);
  sandbox.failing.add("countProcesses");
  const { measured } = sandbox;
  expect(await monitor.peek()).toMatchObject({ processes: 3, diskBytes: 7 * MiB });
  expect(sandbox.measured).toBe(measured);
});

describe("CPU time", () => {
  test("is reported when it is nearly used up, when processes wait for it and when there is enough again", async () => {
    using sandbox = watched();
    await sandbox.run(10);
    expect(sandbox.emitted()).toEqual([]);
    await sandbox.run(10, { cpuMsPerSecond: 1_900 });
    expect(sandbox.emitted()).toEqual(["near cpu"]);
    await sandbox.run(15, { cpuMsPerSecond: 2_000, throttled: 9 });
    expect(sandbox.emitted()).toEqual(["hit cpu"]);
    await sandbox.run(15, { cpuMsPerSecond: 0 });
    expect(sandbox.emitted()).toEqual(["eased cpu"]);
  });

  test("that processes wait for only for a moment is not reported", async () => {
    using sandbox = watched();
    for (let round = 0; round < 10; round += 1) {
      await sandbox.run(1, { cpuMsPerSecond: 1_000, throttled: 9 });
      await sandbox.run(5);
    }
    expect(sandbox.emitted()).toEqual([]);
  });

  test("that the host does not count is not reported", async () => {
    using sandbox = watched();
    sandbox.throttledPeriods = undefined;
    await sandbox.run(20, { cpuMsPerSecond: 2_000 });
    expect(sandbox.emitted()).toEqual([]);
  });
});

test("processes are reported when they come near the limit, when they reach it and when they are fewer", async () => {
  using sandbox = watched();
  sandbox.processes = 32;
  await sandbox.run(2);
  expect(sandbox.emitted()).toEqual(["near processes"]);
  for (sandbox.processes = 40; sandbox.processes >= 32; sandbox.processes -= 1) await sandbox.run(2);
  expect(sandbox.emitted()).toEqual(["hit processes"]);
  await sandbox.run(2);
  expect(sandbox.emitted()).toEqual(["eased processes"]);
});

test("processes of several users are not added up, because the limit applies to each", async () => {
  using sandbox = watched();
  sandbox.processes = 30;
  sandbox.othersProcesses = 30;
  expect(await sandbox.watch().read()).toMatchObject({ processes: 60 });
  await sandbox.run(2);
  expect(sandbox.emitted()).toEqual([]);
});

test("nothing is checked any more after a stop", async () => {
  using sandbox = watched();
  await sandbox.run(2);
  sandbox.watch().stop();
  const { measured } = sandbox;
  await sandbox.run(5);
  expect(sandbox.measured).toBe(measured);
});

describe("a reading that cannot be had", () => {
  const id = "sb_test" as SandboxId;
  const failing = (error: unknown): (() => Promise<never>) => {
    return async () => {
      throw error;
    };
  };

  test("of a sandbox that is being paused or ended is refused as such", async () => {
    const stopped = { isStopped: true, read: failing(new DOMException("stopped", "AbortError")) };
    await expect(readOrExplain(stopped, id)).rejects.toMatchObject({ code: "invalid_state" });
  });

  test("of a guest that does not answer is an error of its own", async () => {
    const silent = { isStopped: false, read: failing(new DOMException("late", "TimeoutError")) };
    await expect(readOrExplain(silent, id)).rejects.toMatchObject({ code: "guest_silent" });
  });

  test("for another reason has its own error", async () => {
    const broken = { isStopped: false, read: failing(new Error("the disk is gone")) };
    await expect(readOrExplain(broken, id)).rejects.toThrow("the disk is gone");
  });
});
