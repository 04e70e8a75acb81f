import { existsSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { bootId, type Cgroup, CgroupV2Tree, readStartTicks } from "@atoll/host";
import { FakeCgroupKernel } from "@atoll/host/testing";
import { SandboxError, type DriverName, type SandboxRecord, type SandboxState } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { LayerLibrary } from "../../src/checkpoints/layer-library.ts";
import { TreePacker } from "../../src/checkpoints/tree-packer.ts";
import { ContainerRuns } from "../../src/drivers/container-runs.ts";
import { LocalDriver } from "../../src/drivers/local/local-driver.ts";
import { EngineContext } from "../../src/engine-context.ts";
import { IdleWatch } from "../../src/idle/idle-watch.ts";
import { EventLog } from "../../src/lifecycle/event-log.ts";
import { reconcile } from "../../src/lifecycle/reconcile.ts";
import { DataLayout } from "../../src/store/layout.ts";
import { SandboxStore } from "../../src/store/sandbox-store.ts";
import { newContainerId, newSandboxId } from "../../src/support/ids.ts";
import type { TemplateLibrary } from "../../src/templates/template-library.ts";
import { caught } from "../support/caught.ts";
import { FakeGuest } from "../support/fake-guest.ts";
import { recordIn } from "../support/sandbox-records.ts";
import { TemporaryDirectory } from "../support/temporary-directory.ts";

let directory: TemporaryDirectory;
let layout: DataLayout;
let store: SandboxStore;
let kernel: FakeCgroupKernel;
let cgroups: CgroupV2Tree;
let context: EngineContext;

beforeEach(() => {
  directory = new TemporaryDirectory();
  layout = new DataLayout(directory.path);
  store = new SandboxStore(layout);
  kernel = new FakeCgroupKernel(2, { "/u": ["cpu", "memory", "pids"] }, ["cgroup.kill"]);
  cgroups = new CgroupV2Tree(kernel, "/u");
  const runs = new ContainerRuns({ guestPath: "/none", guestLayer: "/none", cgroups, namespace: layout.namespace });
  const packer = new TreePacker("/none");
  const templates = { get: async (name: string) => ({ name, trees: [] }) };
  context = new EngineContext({
    layout,
    store,
    // A repair uses only the templates of the library.
    templates: templates as unknown as TemplateLibrary,
    cgroups,
    runs,
    events: new EventLog(),
    drivers: {
      gvisor: new SandboxError("unsupported", "Cannot run gVisor: there is no runsc"),
      local: new LocalDriver({ runs }),
    },
    startTimeoutMs: 1000,
    guestTimeoutMs: 1000,
    idleWatch: new IdleWatch({ slackMs: 0 }),
    guestPath: "/none",
    packer,
    layers: new LayerLibrary(layout, { mergerPath: "/none", packer }),
    readCpuFeatures: async () => [],
    atStep: () => undefined,
  });
});
afterEach(() => {
  directory[Symbol.dispose]();
});

/** Makes a container as the host sees it: a run directory and a cgroup. */
async function addContainer(sandboxDir: string, id: string = newContainerId()): Promise<Cgroup> {
  mkdirSync(`${sandboxDir}/run/${id}`, { recursive: true });
  return cgroups.create(`${layout.namespace}/${id}`, { memoryBytes: 1_000_000, cpus: 1 });
}

/** Adds a process to this group that cannot be killed. */
function makeUnkillable(cgroup: Cgroup): void {
  const pid = 4_194_000;
  kernel.addProcess(`/u/atoll/${cgroup.name}`, pid);
  kernel.onKill = (killed) => {
    if (killed === pid) throw new Error("it hangs in the kernel");
  };
}

async function addRecord<S extends SandboxState>(
  state: S,
  driver: DriverName = "local",
): Promise<SandboxRecord & { state: S }> {
  const record = { ...recordIn(state), driver };
  await store.save(record);
  return record;
}

const cgroupNames = (): Promise<string[]> => cgroups.list(layout.namespace);

test("a paused sandbox whose lifetime is over is killed at start", async () => {
  const paused = recordIn("paused");
  await store.save({ ...paused, driver: "local", expiresAtMs: Date.now() - 1 });
  const killed = new Promise<void>((resolve) => {
    context.events.listen((event) => {
      if (event.type === "state" && event.to === "killed") resolve();
    });
  });
  await reconcile(context);
  await killed;
  expect((await store.load()).records).toEqual([]);
});

describe("what is left on the host", () => {
  test("a cgroup that belongs to no sandbox is removed, those of other engines are not", async () => {
    await cgroups.create(`${layout.namespace}/${newContainerId()}`, { memoryBytes: 1_000_000, cpus: 1 });
    await cgroups.create("another/group", { memoryBytes: 1_000_000, cpus: 1 });
    const repairs = await reconcile(context);
    expect(repairs).toMatchObject([{ what: expect.stringContaining("cgroup"), done: "removed" }]);
    expect(await cgroupNames()).toEqual([]);
    expect(await cgroups.list("another")).toEqual(["another/group"]);
  });

  test("a sandbox that cannot be repaired is reported, and its processes are left alone", async () => {
    const record = await addRecord("pausing", "gvisor");
    const cgroup = await addContainer(layout.sandbox(record.id).dir, record.container.id);
    const repairs = await reconcile(context);
    expect(repairs).toEqual([
      { what: `sandbox ${record.id}`, done: "reported", because: "Cannot run gVisor: there is no runsc" },
    ]);
    expect(await cgroupNames()).toEqual([cgroup.name]);
    expect((await store.load()).records).toEqual([record]);
  });

  test.for(["running", "pausing", "paused", "failed"] as const)(
    "a %s sandbox whose driver is missing can be killed, and nothing of it is left",
    async (state) => {
      const record = await addRecord(state, "gvisor");
      await addContainer(layout.sandbox(record.id).dir);
      await reconcile(context);
      await context.lives.get(record.id)?.kill({ kind: "asked", message: "a test" });
      expect(await store.load()).toEqual({ records: [], unreadable: [], ownerless: [] });
    },
  );

  test("a sandbox whose template is missing is kept, and starts nothing", async () => {
    const get = (name: string): Promise<never> =>
      Promise.reject(new SandboxError("not_found", `Cannot find template ${name}`));
    Object.assign(context.templates, { get });
    const record = await addRecord("paused");
    expect(await reconcile(context)).toMatchObject([{ what: `sandbox ${record.id}`, done: "kept" }]);
    const life = context.lives.get(record.id);
    const from = { frozen: [] };
    const options = { signal: new AbortController().signal, keepsStreams: false, onLaunched: () => undefined };
    await expect(life?.moveTo(newContainerId(), from, options)).rejects.toMatchObject({ code: "not_found" });
    await life?.kill({ kind: "asked", message: "a test" });
    expect((await store.load()).records).toEqual([]);
  });

  test("a directory whose record cannot be read is reported, and its processes are left alone", async () => {
    const { dir, recordFile } = layout.sandbox(newSandboxId());
    const cgroup = await addContainer(dir);
    writeFileSync(recordFile, "{");
    expect(await reconcile(context)).toMatchObject([{ what: dir, done: "reported" }]);
    expect(await cgroupNames()).toEqual([cgroup.name]);
    expect(existsSync(recordFile)).toBe(true);
  });

  test("a directory without a record goes, with its containers", async () => {
    const { dir } = layout.sandbox(newSandboxId());
    await addContainer(dir);
    expect(await reconcile(context)).toMatchObject([{ done: "removed" }]);
    expect(await cgroupNames()).toEqual([]);
    expect(existsSync(dir)).toBe(false);
  });

  test("a cgroup that cannot be removed is reported, and the others go", async () => {
    const limits = { memoryBytes: 1_000_000, cpus: 1 };
    const stuck = await cgroups.create(`${layout.namespace}/${newContainerId()}`, limits);
    const loose = await cgroups.create(`${layout.namespace}/${newContainerId()}`, limits);
    makeUnkillable(stuck);
    const repairs = await reconcile(context);
    expect(repairs).toContainEqual({
      what: `cgroup ${stuck.name}`,
      done: "reported",
      because: "it hangs in the kernel",
    });
    expect(repairs).toContainEqual(expect.objectContaining({ what: `cgroup ${loose.name}`, done: "removed" }));
    expect(await cgroupNames()).toEqual([stuck.name]);
  });

  test("a directory without a record whose processes cannot be killed is reported, once, and stays", async () => {
    const { dir } = layout.sandbox(newSandboxId());
    makeUnkillable(await addContainer(dir));
    const other = layout.sandbox(newSandboxId());
    await addContainer(other.dir);
    const repairs = await reconcile(context);
    expect(repairs.map(({ done }) => done).toSorted()).toEqual(["removed", "reported"]);
    expect([existsSync(dir), existsSync(other.dir)]).toEqual([true, false]);
  });

  test("layers that cannot be collected are reported", async () => {
    Object.assign(context.layers, { collect: () => Promise.reject(new Error("a bad disk")) });
    expect(await reconcile(context)).toEqual([{ what: layout.sealedDir, done: "reported", because: "a bad disk" }]);
  });

  test("when the host cannot be searched, adopted sandboxes are released", async () => {
    using guest = new FakeGuest();
    const record = recordIn("running");
    const identity = { pid: process.pid, startTicks: (await readStartTicks(process.pid)) ?? 0, bootId: await bootId() };
    const container = { ...record.container, ...identity };
    await store.save({ ...record, driver: "local", container });
    const sandbox = layout.sandbox(record.id);
    await addContainer(sandbox.dir, container.id);
    const { fifos } = sandbox.run(container.id);
    symlinkSync(guest.paths.in, fifos.in);
    symlinkSync(guest.paths.out, fifos.out);
    Object.assign(cgroups, { list: () => Promise.reject(new Error("no cgroups")) });
    const outcome = caught(reconcile(context));
    await guest.greet();
    expect(await outcome).toMatchObject({ message: "no cgroups" });
    const life = context.lives.get(record.id);
    expect([life?.record.state, life?.channel.isOpen]).toEqual(["running", false]);
  });
});

describe("a sandbox found half-done", () => {
  test.for(["creating", "killing", "killed", "released"] as const)("%s: nothing of it is left", async (state) => {
    const record = await addRecord(state);
    await addContainer(layout.sandbox(record.id).dir);
    expect(await reconcile(context)).toMatchObject([{ what: `sandbox ${record.id}`, done: "removed" }]);
    expect(await store.load()).toEqual({ records: [], unreadable: [], ownerless: [] });
    expect(await cgroupNames()).toEqual([]);
    expect(context.lives.size).toBe(0);
  });

  test.for(["running", "pausing"] as const)(
    "%s: without its container it has failed, and its files stay",
    async (state) => {
      const record = await addRecord(state);
      mkdirSync(layout.sandbox(record.id).layer(0).upper, { recursive: true });
      await addContainer(layout.sandbox(record.id).dir, record.container.id);
      expect(await reconcile(context)).toMatchObject([{ done: "failed", because: "its container is gone" }]);
      expect((await store.load()).records).toMatchObject([
        { state: "failed", survives: ["files"], reason: { kind: "server" } },
      ]);
      expect(existsSync(layout.sandbox(record.id).layer(0).upper)).toBe(true);
      expect(await cgroupNames()).toEqual([]);
      expect(context.lives.get(record.id)?.record.state).toBe("failed");
    },
  );

  test("resuming: it is paused again, with its checkpoint", async () => {
    const record = await addRecord("resuming");
    await addContainer(layout.sandbox(record.id).dir);
    expect(await reconcile(context)).toMatchObject([{ done: "kept" }]);
    const checkpoint = "checkpoint" in record ? record.checkpoint : undefined;
    expect((await store.load()).records).toMatchObject([{ state: "paused", checkpoint }]);
    expect(await cgroupNames()).toEqual([]);
  });

  test("resuming from the files of a failed sandbox: it has failed as before, and its files stay", async () => {
    const failed = await addRecord("failed");
    const { reason, endedAtMs, survives, state: _, base: __, ...common } = failed;
    const failure = { reason, endedAtMs, survives };
    await store.save({ ...common, state: "resuming", containerId: newContainerId(), failure });
    const { upper } = layout.sandbox(failed.id).layer(0);
    mkdirSync(upper, { recursive: true });
    await addContainer(layout.sandbox(failed.id).dir);
    expect(await reconcile(context)).toMatchObject([{ done: "kept" }]);
    expect((await store.load()).records).toEqual([failed]);
    expect(existsSync(upper)).toBe(true);
    expect(await cgroupNames()).toEqual([]);
  });

  test.for(["paused", "failed"] as const)("%s: it stays as it is", async (state) => {
    const record = await addRecord(state);
    expect(await reconcile(context)).toMatchObject([{ what: `sandbox ${record.id}`, done: "kept" }]);
    expect((await store.load()).records).toEqual([record]);
    expect(context.lives.has(record.id)).toBe(true);
  });

  test("a sandbox that cannot be repaired does not prevent the repair of others", async () => {
    const broken = await addRecord("pausing", "gvisor");
    const killing = await addRecord("killing");
    const repairs = await reconcile(context);
    expect(repairs.map(({ what, done }) => [what, done])).toEqual(
      expect.arrayContaining([
        [`sandbox ${broken.id}`, "reported"],
        [`sandbox ${killing.id}`, "removed"],
      ]),
    );
  });
});
