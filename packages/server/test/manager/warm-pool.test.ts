import type { Sandbox } from "@atoll/engine";
import { CreateSandbox } from "@atoll/protocol";
import { pino } from "pino";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { WarmPool } from "../../src/manager/warm-pool.ts";

const shape = CreateSandbox.parse({});
let launched: FakeSandbox[];

/** The part of a sandbox that a pool uses. */
class FakeSandbox {
  state = "running";
  readonly ran: string[][] = [];
  canRun = true;

  async spawn({ argv }: { argv: string[] }) {
    if (!this.canRun) throw new Error("no such program");
    this.ran.push(argv);
    return { discardOutput: () => undefined, wait: async () => ({ exitCode: 0 }) };
  }

  async kill(): Promise<void> {
    this.state = "killed";
  }
}

function poolOf(count: number, { canRun = true } = {}): WarmPool {
  const pool = new WarmPool({
    shapes: [{ shape, count }],
    launch: async () => {
      const sandbox = Object.assign(new FakeSandbox(), { canRun });
      launched.push(sandbox);
      return sandbox as unknown as Sandbox;
    },
    logger: pino({ enabled: false }),
    replaceDelayMs: 250,
  });
  pool.start();
  return pool;
}

beforeEach(() => {
  launched = [];
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test("a sandbox that was taken is replaced after a delay while others are ready", async () => {
  const pool = poolOf(2);
  await vi.advanceTimersByTimeAsync(0);
  expect(pool.readyCount).toBe(2);
  expect(pool.take(shape)).toBe(launched[0]);
  await vi.advanceTimersByTimeAsync(249);
  expect(launched).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(1);
  expect(launched).toHaveLength(3);
  expect(pool.readyCount).toBe(2);
});

test("an empty pool is filled at once", async () => {
  const pool = poolOf(2);
  await vi.advanceTimersByTimeAsync(0);
  pool.take(shape);
  pool.take(shape);
  await vi.advanceTimersByTimeAsync(0);
  expect(launched).toHaveLength(4);
  expect(pool.take(shape)).toBe(launched[2]);
});

test("nothing is started after the close, and nothing is left", async () => {
  const pool = poolOf(2);
  await vi.advanceTimersByTimeAsync(0);
  pool.take(shape);
  await pool.close();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(launched.map(({ state }) => state)).toEqual(["running", "killed"]);
  expect(pool.take(shape)).toBeUndefined();
});

test("each sandbox has run a program before it is ready, if it can", async () => {
  const pool = poolOf(1);
  await vi.advanceTimersByTimeAsync(0);
  expect(pool.take(shape)).toBe(launched[0]);
  expect(launched[0]?.ran).toEqual([["/bin/bash", "-c", "true"]]);
  const bare = poolOf(1, { canRun: false });
  await vi.advanceTimersByTimeAsync(0);
  expect(bare.readyCount).toBe(1);
});
