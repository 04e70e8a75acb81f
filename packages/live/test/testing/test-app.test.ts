import { existsSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startTestApp, stress, type TestApp } from "../../src/testing/index.ts";
import { processesWith } from "../../src/testing/processes.ts";
import { counter, root, startCounter } from "../support/counter-app.ts";

const calls = `fail() { throw new Error("on purpose"); },
  leak: (state, n: number) => void ((globalThis as any).all ??= []).push(Array.from({ length: n }, Math.random)),`;
const source = counter({ calls });

let app: TestApp;
beforeAll(async () => {
  app = await startCounter({ "src/counter.ts": source }, { autoReload: true, probationMs: 0 });
});
afterAll(() => app.stop());

test("a reload is asserted, and one that fails says why, with the code around it", async () => {
  const compiled = app.waitForCompile();
  const event = await app.assertReloaded(() => app.write("src/counter.ts", `${source} export const one = 1;`));
  expect(event.modules).toEqual(["src/counter.ts"]);
  expect(await compiled).toMatchObject({ ok: true });
  const refused = app.assertReloaded(() => app.write("src/counter.ts", `${source} const = 1;`));
  await expect(refused).rejects.toThrow(/was not reloaded \(compile\).*counter\.ts:\d+:\d+.*> \d+ \|/s);
  await app.assertReloaded(() => app.write("src/counter.ts", `${source} export const two = 2;`));
});

test("a service is made to crash or to be late, and the process to be killed", async () => {
  await app.call("counter", "add", 5);
  const restarted = app.waitFor("service.start");
  expect(await app.crash("counter")).toMatchObject({ service: "counter", reason: "a crash that was injected" });
  await restarted;
  expect(await app.call("counter", "add", 1)).toBe(1);
  await app.delay("counter", 60_000);
  await expect(app.call("counter", "add", 1, 50)).rejects.toMatchObject({ code: "timed_out" });
  expect(await app.kill()).toMatchObject({ willRestart: true });
  expect(await app.assertRunning()).toMatchObject({ state: "running" });
  await expect(app.crash("none")).rejects.toMatchObject({ code: "not_found" });
});

test("stress counts what happened and how long it took", async () => {
  const report = await app.stress(
    { add: () => app.call("counter", "add", 1), fail: () => Promise.reject(new Error("refused")) },
    { durationMs: 300, concurrency: 3 },
  );
  expect(report.completed).toBeGreaterThan(0);
  expect(report.failed).toBeGreaterThan(0);
  expect(report.byName["add"]).toMatchObject({ completed: report.completed, failed: 0 });
  expect(report.errors).toEqual([{ message: "refused", count: report.failed }]);
  const { p50, p95, p99, max } = report.latencyMs;
  expect([p50, p95, p99, max]).toEqual([p50, p95, p99, max].toSorted((a, b) => a - b));
  expect(report.perSecond).toBeCloseTo((report.completed * 1000) / report.durationMs);
  await expect(stress({}, { durationMs: 1 })).rejects.toMatchObject({ code: "invalid_argument" });
});

test("a leak is found, and work that leaks nothing passes", async () => {
  await app.assertNoLeak(() => app.call("counter", "add", 1));
  await expect(
    app.assertNoLeak(() => app.call("counter", "leak", 10_000), { runs: 10, maxGrowthBytes: 100_000 }),
  ).rejects.toThrow("leaks");
});

test("an event that does not come rejects with what came instead", async () => {
  const waiting = app.waitFor("rollback", undefined, 100);
  await app.call("counter", "state");
  await expect(waiting).rejects.toMatchObject({ code: "timed_out", message: expect.stringContaining("no events") });
});

test("apps have ids of their own, share a manager, and leave nothing", async () => {
  const config = { typeCheck: "off", isolation: "process" } as const;
  const sources = { "src/app.ts": root, "src/counter.ts": source };
  const [one, two] = await Promise.all([startTestApp(sources, { config }), startTestApp(sources, { config })]);
  expect(one.id).not.toBe(two.id);
  expect(one.manager).toBe(two.manager);
  await one.call("counter", "add", 1);
  await one.stop();
  await one.stop();
  expect(await two.call("counter", "add", 1)).toBe(1);
  expect(await processesWith(two.folder)).not.toEqual([]);
  await two.stop();
  for (const { folder } of [one, two]) {
    expect(existsSync(folder)).toBe(false);
    expect(await processesWith(folder)).toEqual([]);
  }
  await expect(startTestApp({ "src/app.ts": "export default 1;" }, { config })).rejects.toThrow("no supervisor");
});

test("a folder of the user is left as it is, and is reloaded from given sources", async () => {
  await using copy = await startTestApp(app.folder, { config: { typeCheck: "off", isolation: "process" } });
  await copy.reload({ "src/counter.ts": counter({ add: "state.count += by * 10;" }) });
  expect(await copy.call("counter", "add", 1)).toBe(10);
  await expect(copy.write("src/app.ts", "")).rejects.toMatchObject({ code: "invalid_state" });
});
