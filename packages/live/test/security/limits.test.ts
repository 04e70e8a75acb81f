import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AuditLog, Sampler } from "@atoll/guard";
import type { CustomProfile, HardLimitAction } from "@atoll/protocol";
import { afterAll, describe, expect, test } from "vitest";
import type { LiveEvent } from "../../src/events/live-event.ts";
import { missingCgroups } from "../../src/isolation/app-cgroup.ts";
import { ProcessHost } from "../../src/isolation/process-host.ts";
import { LiveManager } from "../../src/manager/live-manager.ts";

const MiB = 1024 * 1024;
const lacks = await missingCgroups();

const files = mkdtempSync(join(tmpdir(), "atoll-live-"));
mkdirSync(join(files, "src"));
writeFileSync(
  join(files, "src/app.ts"),
  `import { defineSupervisor } from "@atoll/live/app"; import { probe } from "./probe.ts";
   export default defineSupervisor({ maxRestarts: 1_000, children: [{ id: "probe", start: [probe] }] });`,
);
writeFileSync(
  join(files, "src/probe.ts"),
  `import { spawn } from "node:child_process"; import { writeFileSync } from "node:fs";
   import { defineService } from "@atoll/live/app";
   const kept: Buffer[] = [];
   export const probe = defineService({ init: () => ({ count: 0 }), call: {
     count: (state) => (state.count += 1),
     start: (state, n: number) => { for (let at = 0; at < n; at += 1) spawn("sleep", ["600"]); },
     fork: async (state, n: number) => { let failed = 0;
       for (let at = 0; at < n; at += 1) await new Promise<void>((resolve) => { const child = spawn("sleep", ["600"]);
         child.once("spawn", () => resolve()).once("error", () => { failed += 1; resolve(); }); });
       return failed; },
     write: (state, path: string) => writeFileSync(path, Buffer.alloc(${2 * MiB})),
     wait: () => new Promise(() => undefined),
     fill: () => { for (;;) kept.push(Buffer.alloc(${4 * MiB}, 1)); } } });`,
);
const base: CustomProfile = {
  isolation: "low",
  limits: { memoryBytes: 128 * MiB, cpus: 1, processes: 8, fileBytes: MiB, runTimeMs: 5_000 },
  allowedOperations: ["all"],
  restrictedModules: [],
  audit: "basic",
  softLimit: 0.8,
  onHardLimit: "kill",
};

const sampler = new Sampler({ intervalMs: 100, keep: 20 });
const state = mkdtempSync(join(tmpdir(), "atoll-live-state-"));
const audit = new AuditLog(join(state, "audit"), { key: Buffer.alloc(32, 1) });
const manager = new LiveManager({
  hosts: [new ProcessHost()],
  stateDir: join(state, "apps"),
  monitor: sampler,
  audit,
});
const events: LiveEvent[] = [];
manager.onEvent((event) => void events.push(event));
afterAll(async () => {
  await manager[Symbol.asyncDispose]();
  sampler.close();
  audit.close();
  for (const path of [files, state]) rmSync(path, { recursive: true, force: true });
});

/** Resolves with the first event, from now on or before, that the condition holds for. */
function eventOf(condition: (event: LiveEvent) => boolean): Promise<LiveEvent> {
  return new Promise((resolve) => {
    const stop = manager.onEvent((event) => {
      if (!condition(event)) return;
      stop();
      resolve(event);
    });
    const known = events.find(condition);
    if (known === undefined) return;
    stop();
    resolve(known);
  });
}

const create = (id: string, profile: CustomProfile) =>
  // The kernel may take long to end a process that needs too much memory, and nothing else shall end it here.
  manager.create(id, files, { profile, typeCheck: "off", maxRestarts: 1_000, limits: { unresponsiveMs: 60_000 } });

describe.skipIf(lacks.length > 0)("limits of a profile", { timeout: 60_000 }, () => {
  test("each is kept: memory, processes, the size of files, the time of a call", async () => {
    await create("limited", base);
    await expect(manager.call("limited", "probe", "write", join(state, "big"))).rejects.toThrow("EFBIG");
    const filling = manager.call("limited", "probe", "fill").catch(() => undefined);
    const ended = await eventOf((event) => event.app === "limited" && event.type === "process.end");
    expect(ended).toMatchObject({ reason: expect.stringContaining("more memory") });
    await filling;
    await manager.destroy("limited");
    await create("forks", { ...base, onHardLimit: "throttle" });
    expect(await manager.call("forks", "probe", "fork", 40)).toBeGreaterThan(10);
    await expect(manager.call("forks", "probe", "wait")).rejects.toMatchObject({ code: "timed_out" });
    await manager.destroy("forks");
  });

  test.for<[HardLimitAction, state: string]>([
    ["throttle", "running"],
    ["stop_process", "running"],
    ["pause", "stopped"],
    ["kill", "stopped"],
  ])("at a limit, %s is done, reported and recorded", async ([action, then]) => {
    const id = action.replace("_", "-");
    await create(id, { ...base, limits: { ...base.limits, runTimeMs: 30_000 }, onHardLimit: action });
    await manager.call(id, "probe", "count");
    // The process may be ended before it can answer.
    const starting = manager.call(id, "probe", "start", 8).catch(() => undefined);
    const hit = await eventOf((event) => event.app === id && event.type === "limit.hit" && event.limit === "processes");
    expect(hit).toMatchObject({ allowed: 8 });
    expect(await eventOf((event) => event.app === id && event.type === "limit.enforced")).toMatchObject({
      action,
      result: "done",
    });
    await starting;
    if (action === "stop_process") await eventOf((event) => event.app === id && event.type === "process.end");
    if (then === "running") await eventOf((event) => event.app === id && isNow(event, "running"));
    expect(sampler.history(`app:${id}`)?.samples.length).toBeGreaterThan(0);
    if (then === "stopped") {
      expect(manager.get(id)).toMatchObject({ state: then, reason: expect.stringContaining("limit of processes") });
      await manager.restart(id);
      // A pause keeps the states of the services.
      expect(await manager.call(id, "probe", "count")).toBe(action === "pause" ? 2 : 1);
    }
    await manager.destroy(id);
    const lines = readFileSync(join(state, "audit/audit.jsonl"), "utf8").trim().split("\n");
    const recorded = lines.map((line) => JSON.parse(line) as { who: string; what: string }).filter(isOf(id));
    expect(recorded.map(({ what }) => what)).toEqual(
      expect.arrayContaining(["app.state", "app.limit.hit", "app.limit.enforced", "app.destroy"]),
    );
  });
});

const isNow = (event: LiveEvent, state: string): boolean => event.type === "app.state" && event.state === state;
const isOf =
  (id: string) =>
  ({ who }: { who: string }): boolean =>
    who === `app:${id}`;
