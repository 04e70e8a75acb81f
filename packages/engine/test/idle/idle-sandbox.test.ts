import { beforeEach, expect, test, vi } from "vitest";
import { IdleSandbox } from "../../src/idle/idle-sandbox.ts";
import type { RunTally } from "../../src/idle/timer-slack.ts";

const slackMs = 250;
const ordinary = 0;

/** A sandbox whose processes run as often as a test wants, on a clock of its own, checked whenever it is due. */
class FakeSandbox {
  nowMs = 1_000_000;
  runsPerSecond = 0;
  msPerRun = 0.1;
  waitMsPerRun = 0;
  needsSlack = true;
  isTellable = true;
  isRefused = false;
  slackMs = ordinary;
  runsAsked = 0;
  /** The slack that the container had at its disposal. */
  disposedAt: number | undefined;
  readonly errors: unknown[] = [];
  #tally: RunTally = { runs: 1_000, ms: 100, waitMs: 10 };
  readonly idle = new IdleSandbox({
    slackMs,
    now: () => this.nowMs,
    onWatched: () => undefined,
    onError: (error) => this.errors.push(error),
  });

  watch(): void {
    this.idle.watch(async () => (this.needsSlack ? this.#slack : undefined));
  }

  readonly #slack = {
    allow: (ms: number): void => {
      if (this.isRefused) throw new Error("The kernel does not allow it");
      this.slackMs = ms;
    },
    remove: (): void => {
      this.slackMs = ordinary;
    },
    [Symbol.dispose]: (): void => {
      this.disposedAt = this.slackMs;
    },
    readRuns: (): RunTally | undefined => {
      this.runsAsked += 1;
      return this.isTellable ? { ...this.#tally } : undefined;
    },
  };

  /** Lets time pass; `eachStep` is called after each tenth of a second. */
  async pass(seconds: number, eachStep: () => void = () => undefined): Promise<void> {
    for (let tenth = 0; tenth < seconds * 10; tenth += 1) {
      this.nowMs += 100;
      this.run(this.runsPerSecond / 10);
      eachStep();
      if (this.idle.dueMs <= this.nowMs) this.idle.look();
      // Pending questions to the driver are answered here.
      await Promise.resolve();
      await Promise.resolve();
      await Promise.resolve();
    }
  }

  run(runs: number): void {
    this.#tally.runs += runs;
    this.#tally.ms += runs * this.msPerRun;
    this.#tally.waitMs += runs * this.waitMsPerRun;
  }
}

let sandbox: FakeSandbox;
beforeEach(() => {
  sandbox = new FakeSandbox();
  sandbox.watch();
});

test("a sandbox in which nothing happens gets slack", async () => {
  await sandbox.pass(1);
  expect(sandbox.slackMs).toBe(ordinary);
  await sandbox.pass(2);
  expect(sandbox.slackMs).toBe(slackMs);
});

test.for(["onSend", "onReceive"] as const)(
  "%s removes it at once, and it comes back when all is quiet",
  async (what) => {
    await sandbox.pass(3);
    sandbox.idle[what](false);
    expect(sandbox.slackMs).toBe(ordinary);
    await sandbox.pass(1);
    expect(sandbox.slackMs).toBe(ordinary);
    await sandbox.pass(4);
    expect(sandbox.slackMs).toBe(slackMs);
  },
);

test("a sandbox with frames again and again gets no slack", async () => {
  await sandbox.pass(10, () => {
    if (sandbox.nowMs % 900 === 0) sandbox.idle.onReceive(false);
    expect(sandbox.slackMs).toBe(ordinary);
  });
});

test.for([
  ["runs often", { runsPerSecond: 10 }],
  ["runs for long at a time", { runsPerSecond: 1, msPerRun: 50 }],
  ["mostly waits for a processor", { runsPerSecond: 2, waitMsPerRun: 300 }],
  ["cannot be counted", { isTellable: false }],
] as const)("a sandbox in which something %s has none", async ([, load]) => {
  Object.assign(sandbox, load);
  await sandbox.pass(20);
  expect(sandbox.slackMs).toBe(ordinary);
});

test("a server that polls twice a second counts as idle", async () => {
  await sandbox.pass(30, () => {
    if (sandbox.nowMs % 500 === 0) sandbox.run(2);
    if (sandbox.nowMs > 1_004_000) expect(sandbox.slackMs).toBe(slackMs);
  });
});

test("a process that starts to run in an idle sandbox is punctual after a few seconds", async () => {
  await sandbox.pass(3);
  sandbox.runsPerSecond = 10;
  await sandbox.pass(6);
  expect(sandbox.slackMs).toBe(ordinary);
});

test("routine questions neither remove it nor keep it away, whatever the guest does for them", async () => {
  const askEachSecond = (): void => {
    if (sandbox.nowMs % 1_000 !== 0) return;
    sandbox.idle.onSend(true);
    sandbox.run(4);
    sandbox.idle.onReceive(true);
  };
  await sandbox.pass(4, askEachSecond);
  expect(sandbox.slackMs).toBe(slackMs);
  await sandbox.pass(10, () => {
    askEachSecond();
    expect(sandbox.slackMs).toBe(slackMs);
  });
});

test("a sandbox has no slack while it is prevented, nor right after", async () => {
  await sandbox.pass(3);
  const hold = sandbox.idle.preventSlack();
  expect(sandbox.slackMs).toBe(ordinary);
  await sandbox.pass(10);
  expect(sandbox.slackMs).toBe(ordinary);
  hold[Symbol.dispose]();
  await sandbox.pass(1);
  expect(sandbox.slackMs).toBe(ordinary);
  await sandbox.pass(2);
  expect(sandbox.slackMs).toBe(slackMs);
});

test("a container that needs no slack is asked about once", async () => {
  const find = vi.fn<() => Promise<undefined>>().mockResolvedValue(undefined);
  sandbox.idle.watch(find);
  await sandbox.pass(10);
  expect(find).toHaveBeenCalledOnce();
  expect(sandbox.idle.isWatched).toBe(false);
});

test("after `leave` a sandbox has no slack and is not checked, until it is watched in its next container", async () => {
  await sandbox.pass(3);
  expect(sandbox.slackMs).toBe(slackMs);
  sandbox.idle.leave();
  expect(sandbox.slackMs).toBe(ordinary);
  expect(sandbox.disposedAt).toBe(ordinary);
  sandbox.slackMs = 77;
  sandbox.idle.onSend(false);
  await sandbox.pass(10);
  expect(sandbox.slackMs).toBe(77);
  sandbox.watch();
  await sandbox.pass(3);
  expect(sandbox.slackMs).toBe(slackMs);
});

test("a sandbox that is left during the search for its slack stays left", async () => {
  let resolve: () => void = () => undefined;
  const answered = new Promise<void>((done) => {
    resolve = done;
  });
  sandbox.idle.watch(async () => {
    await answered;
    return {
      allow: () => expect.unreachable(),
      remove: () => undefined,
      [Symbol.dispose]: () => undefined,
      readRuns: () => ({ runs: 0, ms: 0, waitMs: 0 }),
    };
  });
  await sandbox.pass(2);
  sandbox.idle.leave();
  resolve();
  await sandbox.pass(10);
  expect(sandbox.idle.dueMs).toBe(Infinity);
});

test("a kernel that refuses slack is reported once, and requests are not disturbed", async () => {
  sandbox.isRefused = true;
  await sandbox.pass(10);
  sandbox.idle.onSend(false);
  expect(sandbox.errors).toHaveLength(1);
});

test("idle and busy sandboxes are checked every few seconds", async () => {
  await sandbox.pass(3);
  sandbox.runsAsked = 0;
  await sandbox.pass(30);
  expect(sandbox.runsAsked).toBeLessThanOrEqual(11);
  sandbox.runsPerSecond = 100;
  await sandbox.pass(5);
  sandbox.runsAsked = 0;
  await sandbox.pass(30);
  expect(sandbox.runsAsked).toBeLessThanOrEqual(24);
});
