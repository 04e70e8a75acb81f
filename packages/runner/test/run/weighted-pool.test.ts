import { expect, test } from "vitest";
import { WeightedPool, type Weights } from "../../src/run/weighted-pool.ts";

const capacity = { cpus: 4, memoryBytes: 100, diskBytes: 100 };
const weights = (part: Partial<Weights> = {}): Weights => ({ cpus: 1, memoryBytes: 1, diskBytes: 1, ...part });

/** Work that is at `started` as soon as it runs, and ends when it is asked to. */
function job(pool: WeightedPool, size: Weights): { started: () => boolean; end: () => Promise<void> } {
  let finish = (): void => {};
  let hasStarted = false;
  const done = pool.run(size, async () => {
    hasStarted = true;
    await new Promise<void>((resolve) => (finish = resolve));
  });
  return {
    started: () => hasStarted,
    end: async () => {
      finish();
      await done;
    },
  };
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

test("no more work runs than the number of jobs allows", async () => {
  const pool = new WeightedPool(2, capacity);
  const jobs = [0, 1, 2].map(() => job(pool, weights()));
  await settle();
  expect(jobs.map(({ started }) => started())).toEqual([true, true, false]);
  await jobs[0]?.end();
  await settle();
  expect(jobs[2]?.started()).toBe(true);
  await Promise.all(jobs.slice(1).map(({ end }) => end()));
});

test.for(["cpus", "memoryBytes", "diskBytes"] as const)("work waits for %s", async (name) => {
  const pool = new WeightedPool(9, capacity);
  const large = weights({ [name]: capacity[name] * 0.6 });
  const [first, second, third] = [job(pool, large), job(pool, large), job(pool, weights())];
  await settle();
  // What came later does not overtake it, although there is room.
  expect([first, second, third].map(({ started }) => started())).toEqual([true, false, false]);
  await first.end();
  await settle();
  expect([second, third].map(({ started }) => started())).toEqual([true, true]);
  await Promise.all([second.end(), third.end()]);
});

test("work that is larger than everything runs alone", async () => {
  const pool = new WeightedPool(9, capacity);
  const [small, huge] = [job(pool, weights()), job(pool, weights({ memoryBytes: 1000 }))];
  await settle();
  expect(huge.started()).toBe(false);
  await small.end();
  await settle();
  expect(huge.started()).toBe(true);
  await huge.end();
});

test("work that fails makes room", async () => {
  const pool = new WeightedPool(1, capacity);
  await expect(pool.run(weights(), () => Promise.reject(new Error("no")))).rejects.toThrow("no");
  await expect(pool.run(weights(), () => Promise.resolve("yes"))).resolves.toBe("yes");
});
