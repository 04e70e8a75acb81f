// @module-tag gvisor
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { findLeftoversIn } from "@atoll/engine";
import { detectCgroups } from "@atoll/host";
import {
  CreateSandbox,
  SecurityProfile,
  type CreateSandboxInput,
  type HardLimitAction,
  type LimitName,
  type SandboxId,
} from "@atoll/protocol";
import type { Command } from "@atoll/server";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createIn, openTestManager, readAll, start, type TestManager } from "../support/test-manager.ts";

const MiB = 1024 * 1024;
const limits = { memoryBytes: 256 * MiB, processes: 40, diskBytes: 32 * MiB };

const forkBomb = [
  "import os,time",
  "try:",
  "  while True:",
  "    if os.fork()==0: time.sleep(600); os._exit(0)",
  "except OSError: print('full', flush=True)",
  "time.sleep(600)",
].join("\n");
/** Uses as many MiB of memory as each line of its input says. */
const eater = [
  "import sys",
  "kept=[]",
  "for line in sys.stdin:",
  "  block=bytearray(int(line)*1048576)",
  "  for i in range(0,len(block),4096): block[i]=1",
  "  kept.append(block)",
  "  print('ate', flush=True)",
].join("\n");
const filler = "i=0; while head -c 1M /dev/zero > fill$i; do i=$((i+1)); sleep 0.005; done 2>/dev/null; sleep 600";

describe("a sandbox at a limit", () => {
  let host: TestManager;
  const events: Record<string, unknown>[] = [];

  beforeAll(async () => {
    host = await openTestManager({
      monitor: { intervalMs: 1_000, keep: 3 },
      journal: { onEmit: (event) => events.push(event) },
    });
  });
  beforeEach(() => {
    events.length = 0;
  });
  afterAll(async () => {
    await host.dispose();
  });

  async function create(onHardLimit: HardLimitAction, more: CreateSandboxInput = {}): Promise<SandboxId> {
    const name = `at-limits-${onHardLimit.replace("_", "-")}`;
    const profile = SecurityProfile.parse({
      name,
      isolation: "high",
      limits: { ...limits, cpus: 2 },
      allowedOperations: ["compute"],
      onHardLimit,
    });
    const request = CreateSandbox.parse({ driver: "gvisor", limits, profile: name, ...more });
    return (await host.manager.create(request, { keyId: "test", profile })).sandbox.id;
  }

  /** Resolves with the command that exceeds the limit. */
  async function exceed(id: SandboxId, limit: "memory" | "processes" | "disk"): Promise<Command> {
    const { manager } = host;
    switch (limit) {
      case "processes":
        return start(manager, id, { argv: ["python3", "-c", forkBomb] });
      case "disk":
        return start(manager, id, filler);
      case "memory": {
        const command = await start(manager, id, { argv: ["python3", "-c", eater], stdin: true });
        let meals = 0;
        // So much that almost none is left, and the kernel kills nothing. The memory of programs that have ended
        // becomes free later, so one meal may not be enough.
        const eat = async (): Promise<unknown[]> => {
          if (hits(id).includes(limit) || command.info().stdoutBytes < 4 * meals) return hits(id);
          const { memoryBytes } = await manager.usage(id);
          const missing = meals === 0 ? 1 : Math.ceil((limits.memoryBytes * 0.96 - memoryBytes) / MiB);
          if (missing <= 0) return hits(id);
          meals += 1;
          await command.writeStdin(Buffer.from(`${missing}\n`));
          return hits(id);
        };
        await expect.poll(eat, { interval: 100 }).toContain(limit);
        return command;
      }
    }
  }

  async function enforced(id: SandboxId, limit: LimitName): Promise<Record<string, unknown> | undefined> {
    const find = () =>
      events.find((e) => e["type"] === "limit.enforced" && e["sandboxId"] === id && e["limit"] === limit);
    await expect.poll(find).toBeDefined();
    return find();
  }

  const hits = (id: SandboxId): unknown[] =>
    events.filter((e) => e["type"] === "limit.hit" && e["sandboxId"] === id).map((e) => e["limit"]);

  /** Returns how much CPU time the kernel allows the sandbox, in cores. */
  async function allowedCpus(id: SandboxId): Promise<number> {
    const { record } = host.manager.engine.get(id);
    const container = "container" in record ? record.container.id : "";
    const namespace = createHash("sha256").update(host.dataDir).digest("hex").slice(0, 12);
    const cgroups = await detectCgroups();
    for (const root of cgroups?.roots ?? []) {
      const group = join(root, "atoll", namespace, container);
      if (existsSync(join(group, "cpu.cfs_quota_us")))
        return Number(await readFile(join(group, "cpu.cfs_quota_us"), "utf8")) / 100_000;
      if (existsSync(join(group, "cpu.max")))
        return Number.parseInt(await readFile(join(group, "cpu.max"), "utf8")) / 100_000;
    }
    throw new Error(`There is no cgroup of ${id}`);
  }

  test("throttle: it gets a quarter of its CPU time until it is far from the limit", async () => {
    const id = await create("throttle");
    expect(await allowedCpus(id)).toBe(2);
    for (const limit of ["processes", "disk", "memory"] as const) {
      events.length = 0;
      const command = await exceed(id, limit);
      expect(await enforced(id, limit)).toMatchObject({ action: "throttle", result: "done" });
      expect(hits(id)).toContain(limit);
      expect(await allowedCpus(id)).toBe(0.5);
      await command.signal("SIGKILL");
      await command.waitEnd();
      if (limit === "disk") await (await start(host.manager, id, "rm -f fill*")).waitEnd();
      // A process that uses CPU time makes the next check come at once.
      const busy = await start(host.manager, id, { argv: ["bash", "-c", "for i in $(seq 200000); do :; done"] });
      await expect.poll(() => allowedCpus(id)).toBe(2);
      await busy.waitEnd();
    }
    await host.manager.kill(id);
  });

  test("stop_process: the command that uses most is stopped, and another one goes on", async () => {
    const id = await create("stop_process");
    const innocent = await start(host.manager, id, { shell: "while read line; do echo $line; done", stdin: true });
    for (const limit of ["processes", "memory", "disk"] as const) {
      events.length = 0;
      const guilty = await exceed(id, limit);
      expect(await enforced(id, limit)).toMatchObject({ action: "stop_process", result: "done" });
      expect(events.find((e) => e["type"] === "limit.enforced")?.["because"]).toBe(`command ${guilty.id} was stopped`);
      expect((await guilty.waitEnd()).signal).toBe("SIGKILL");
    }
    await innocent.writeStdin(Buffer.from("alive\n"));
    await expect.poll(async () => innocent.info().stdoutBytes).toBe(6);
    await innocent.signal("SIGKILL");
    await innocent.waitEnd();
    expect((await readAll(innocent)).text).toBe("alive\n");
    await host.manager.kill(id);
  });

  test("pause: its memory and files are saved, and a client can go on with it", async () => {
    const id = await create("pause");
    for (const limit of ["processes", "memory", "disk"] as const) {
      events.length = 0;
      const command = await exceed(id, limit);
      expect(await enforced(id, limit)).toMatchObject({ action: "pause", result: "done", because: "it was paused" });
      expect(host.manager.get(id).state).toBe("paused");
      await host.manager.pauseResume.resume(id, { memory: true });
      await command.signal("SIGKILL");
      expect((await command.waitEnd()).state).toBe("exited");
    }
    await host.manager.kill(id);
  });

  test.for(["processes", "memory", "disk"] as const)("kill, %s: it is killed with that reason", async (limit) => {
    const id = await create("kill");
    await exceed(id, limit);
    expect(await enforced(id, limit)).toMatchObject({ action: "kill", result: "done" });
    expect(events).toContainEqual(
      expect.objectContaining({
        type: "sandbox.state",
        to: "killed",
        reason: expect.objectContaining({ kind: limit }),
      }),
    );
    expect(() => host.manager.get(id)).toThrow("Cannot find");
  });

  test("kill, memory: it is killed also when the kernel has ended it first", async () => {
    const id = await create("kill", { limits: { ...limits, memoryBytes: 128 * MiB } });
    await start(host.manager, id, "head -c 400M /dev/zero | tail -c 300M | wc -c");
    expect(await enforced(id, "memory")).toMatchObject({ action: "kill", result: "done" });
    expect(() => host.manager.get(id)).toThrow("Cannot find");
  });

  test("CPU: the kernel keeps the limit, and no action is needed", async () => {
    const id = await create("kill", { limits: { ...limits, cpus: 0.2 } });
    const command = await start(host.manager, id, "while :; do :; done");
    await expect.poll(() => hits(id)).toEqual(["cpu"]);
    const audit = await readFile(join(host.dataDir, "audit/audit.jsonl"), "utf8");
    expect(audit).toMatch(new RegExp(`"what":"limit","sandboxId":"${id}","result":"hit".*"limit":"cpu"`));
    expect(host.manager.get(id).state).toBe("running");
    expect(host.manager.monitor.sampler.totals.violations.get("cpu hard")?.count).toBe(1);
    // The history has the newest samples, and no more than are kept.
    const cpus = (): number[] => host.manager.monitor.history(id).samples.map((sample) => sample.cpus);
    await expect.poll(() => cpus().length).toBe(3);
    const last = (): number => host.manager.monitor.history(id).samples.at(-1)?.atMs ?? 0;
    const before = last();
    await expect.poll(last).toBeGreaterThan(before);
    expect(cpus()).toHaveLength(3);
    expect(Math.max(...cpus())).toBeGreaterThan(0.05);
    await command.signal("SIGKILL");
    await host.manager.kill(id);
    expect(() => host.manager.monitor.history(id)).toThrow("not on this server");
  });
});

test("what a sandbox leaves behind after its end is found and reported", async () => {
  const events: Record<string, unknown>[] = [];
  const host = await openTestManager({
    monitor: { leftoverCheckMs: 50 },
    journal: { onEmit: (event) => events.push(event) },
  });
  const [gone, stays] = await Promise.all([createIn(host.manager), createIn(host.manager)]);
  const directory = join(host.dataDir, "sandboxes", "left");
  await mkdir(join(directory, "run"), { recursive: true });
  const namespace = createHash("sha256").update(host.dataDir).digest("hex").slice(0, 12);
  const cgroup = await (await detectCgroups())?.create(`${namespace}/left`, { memoryBytes: 64 * MiB, cpus: 1 });
  await host.manager.kill(gone);
  const found = () => events.filter((e) => e["type"] === "resource.left").map((e) => [e["kind"], e["what"]]);
  await expect.poll(found).toHaveLength(2);
  expect(found()).toContainEqual(["cgroup", `cgroup ${namespace}/left`]);
  expect(found()).toContainEqual(["directory", `directory ${directory}`]);
  expect(host.manager.monitor.leftovers.count).toBe(2);
  // `atoll doctor` finds the same, from outside of the server.
  const whats = (await findLeftoversIn(host.dataDir)).map(({ what }) => what);
  expect(new Set(whats)).toEqual(new Set([`cgroup ${namespace}/left`, `directory ${directory}`]));
  await cgroup?.remove();
  await rm(directory, { recursive: true });
  await expect.poll(() => host.manager.monitor.leftovers.count).toBe(0);
  expect(host.manager.get(stays).state).toBe("running");
  await host.dispose();
});
