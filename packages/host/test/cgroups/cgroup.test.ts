import { isSandboxError } from "@atoll/protocol";
import { describe, expect, test } from "vitest";
import { CgroupV1Tree } from "../../src/cgroups/cgroup-v1.ts";
import { CgroupV2Tree } from "../../src/cgroups/cgroup-v2.ts";
import type { CgroupTree } from "../../src/cgroups/cgroup.ts";
import { FakeCgroupKernel } from "../../src/testing/fake-cgroup-kernel.ts";

const MiB = 1024 * 1024;
const limits = { memoryBytes: 64 * MiB, cpus: 0.5 };

function makeV1(without: string[] = []): { kernel: FakeCgroupKernel; tree: CgroupTree } {
  const roots = { "/m": ["memory"], "/c": ["cpu", "cpuacct"], "/f": ["freezer"], "/p": ["pids"] };
  const kernel = new FakeCgroupKernel(1, roots, without);
  return {
    kernel,
    tree: new CgroupV1Tree(kernel, { memory: "/m", cpu: "/c", cpuacct: "/c", freezer: "/f", pids: "/p" }),
  };
}

function makeV2(without: string[] = []): { kernel: FakeCgroupKernel; tree: CgroupTree } {
  const kernel = new FakeCgroupKernel(2, { "/u": ["cpuset", "cpu", "io", "memory", "pids"] }, without);
  return { kernel, tree: new CgroupV2Tree(kernel, "/u") };
}

const codeOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => "resolved",
    (error: unknown) => (isSandboxError(error) ? error.code : error),
  );

describe.for([
  { version: "v1", make: makeV1 },
  { version: "v2", make: makeV2 },
])("cgroup $version", ({ make }) => {
  test("usage is reported", async () => {
    const { tree } = make();
    const group = await tree.create("ns/a", limits);
    expect(await group.usage()).toEqual({ memoryBytes: 0, memoryPeakBytes: 0, cpuMs: 0, throttledPeriods: 0 });
    expect([await group.oomKills(), await group.pids()]).toEqual([0, []]);
  });

  test.for(["a", "a/b/c", "../b", "ns/..", "ns/", "/ns/a", "ns/a b", "ns/.a"])("%j is not a name", async (name) => {
    const { tree } = make();
    await expect(tree.create(name, limits)).rejects.toThrow("is not the name of a cgroup");
    await expect(tree.open(name)).rejects.toThrow("is not the name of a cgroup");
  });

  test("a name that is taken is refused, and its group stays", async () => {
    const { kernel, tree } = make();
    const first = await tree.create("ns/a", limits);
    const before = kernel.groups;
    expect(await codeOf(tree.create("ns/a", { memoryBytes: 1, cpus: 1 }))).toBe("already_exists");
    expect(kernel.groups).toEqual(before);
    expect(await tree.list("ns")).toEqual([first.name]);
  });

  test("creating that does not succeed leaves nothing behind", async () => {
    const { kernel, tree } = make(["pids.max"]);
    expect(await codeOf(tree.create("ns/a", { ...limits, pidsMax: 10 }))).toBe("unsupported");
    expect(kernel.groups).toEqual([]);
  });

  test("a cgroup filesystem that cannot be written is unsupported, with advice", async () => {
    const { kernel, tree } = make();
    kernel.makeDirectory = () => Promise.reject(Object.assign(new Error("EROFS"), { code: "EROFS" }));
    await expect(tree.create("ns/a", limits)).rejects.toMatchObject({
      code: "unsupported",
      suggestion: expect.stringContaining("root"),
    });
  });

  test("a parent that another engine removes in between is made again", async () => {
    const { kernel, tree } = make();
    const other = await tree.create("other/z", limits);
    const make1 = kernel.makeDirectory.bind(kernel);
    let isFirst = true;
    kernel.makeDirectory = async (path) => {
      if (path.endsWith("/ns/a") && isFirst) {
        isFirst = false;
        await other.remove();
      }
      await make1(path);
    };
    const group = await tree.create("ns/a", limits);
    expect(await group.pids()).toEqual([]);
    expect(await tree.list("ns")).toEqual(["ns/a"]);
  });

  test("all groups together have the given weight, also after all were removed", async () => {
    const { kernel, tree } = make();
    const weight = (): string | undefined => kernel.file("/c/atoll/cpu.shares") ?? kernel.file("/u/atoll/cpu.weight");
    await tree.setWeight(25);
    expect(weight()).toBeUndefined();
    const first = await tree.create("ns/a", limits);
    expect(["256", "25"]).toContain(weight());
    await tree.setWeight(50);
    expect(["512", "50"]).toContain(weight());
    await first.remove();
    expect(weight()).toBeUndefined();
    await tree.create("ns/b", limits);
    expect(["512", "50"]).toContain(weight());
  });

  test("without a weight of their own they weigh as much as any other group", async () => {
    const { kernel, tree } = make();
    await tree.create("ns/a", limits);
    expect(kernel.file("/c/atoll/cpu.shares") ?? kernel.file("/u/atoll/cpu.weight")).toMatch(/^(1024|100)$/);
  });

  test("a weight meets groups that another engine has made", async () => {
    const { kernel, tree } = make();
    await tree.create("other/a", limits);
    await tree.setWeight(1);
    expect(kernel.file("/c/atoll/cpu.shares") ?? kernel.file("/u/atoll/cpu.weight")).toMatch(/^(10|1)$/);
  });

  test("every process in the group and below is listed once, and none of another namespace", async () => {
    const { kernel, tree } = make();
    const group = await tree.create("ns/a", limits);
    for (const directory of group.directories) {
      await kernel.makeDirectory(`${directory}/below`);
      kernel.addProcess(directory, 10, 11);
      kernel.addProcess(`${directory}/below`, 12, 0);
    }
    expect(new Set(await group.pids())).toEqual(new Set([10, 11, 12]));
    expect((await group.pids()).length).toBe(3);
  });

  test("killing all reaches processes that fork at the same time", async () => {
    const { kernel, tree } = make();
    const group = await tree.create("ns/a", limits);
    let next = 100;
    // A process that is not frozen leaves a child behind.
    kernel.onKill = (pid) => {
      if (kernel.isFrozen(pid)) return;
      for (const directory of group.directories) kernel.addProcess(directory, next);
      next++;
    };
    for (const directory of group.directories) kernel.addProcess(directory, 10, 11);
    await group.killAll({ deadlineMs: 60_000 });
    expect(await group.pids()).toEqual([]);
  });

  test("killing all reaches frozen processes", async () => {
    const { kernel, tree } = make();
    const group = await tree.create("ns/a", limits);
    for (const directory of group.directories) kernel.addProcess(directory, 10);
    await group.freeze();
    await group.killAll({ deadlineMs: 60_000 });
    expect(await group.pids()).toEqual([]);
  });

  test("killing all reaches processes that the launcher froze", async () => {
    const { kernel, tree } = make();
    const group = await tree.create("ns/a", limits);
    for (const directory of group.directories) kernel.addProcess(directory, 10);
    const [file, word] = group.freezer?.startsWith("/f/") ? ["freezer.state", "FROZEN"] : ["cgroup.freeze", "1"];
    await kernel.write(`${group.freezer}/${file}`, word);
    await group.killAll({ deadlineMs: 5_000 });
    expect(await group.pids()).toEqual([]);
  });

  test("a process that does not die is named when the deadline has passed", async () => {
    const { kernel, tree } = make();
    const group = await tree.create("ns/a", limits);
    kernel.addProcess(group.directories[0] ?? "", 10, 11);
    kernel.immortal.add(11);
    await expect(group.killAll({ deadlineMs: 10 })).rejects.toMatchObject({
      code: "timed_out",
      details: { pids: [11] },
    });
  });

  test("removing waits until the kernel has removed the group", async () => {
    const { kernel, tree } = make();
    const group = await tree.create("ns/a", limits);
    kernel.removalsRefused = 3;
    await group.remove();
    expect(kernel.groups.filter((path) => path.includes("/ns/a"))).toEqual([]);
  });

  test("removing takes what was made below and the empty parents with it, and is idempotent", async () => {
    const { kernel, tree } = make();
    const group = await tree.create("ns/a", limits);
    for (const directory of group.directories) {
      await kernel.makeDirectory(`${directory}/below`);
      await kernel.makeDirectory(`${directory}/below/deeper`);
    }
    await group.remove();
    expect(kernel.groups).toEqual([]);
    await group.remove();
    await (await tree.open("ns/never")).remove();
  });

  test("removing leaves other groups and other namespaces alone", async () => {
    const { tree } = make();
    const group = await tree.create("ns/a", limits);
    await tree.create("ns/b", limits);
    await tree.create("other/c", limits);
    await group.remove();
    expect([await tree.list("ns"), await tree.list("other"), await tree.list("none")]).toEqual([
      ["ns/b"],
      ["other/c"],
      [],
    ]);
  });

  test("a group that was left is opened with the same directories", async () => {
    const { tree } = make();
    const created = await tree.create("ns/a", { ...limits, pidsMax: 9 });
    const opened = await tree.open("ns/a");
    expect(opened.directories).toEqual(created.directories);
    expect(await (await tree.open("ns/never")).pids()).toEqual([]);
    expect(await (await tree.open("ns/never")).usage()).toEqual({ memoryBytes: 0, memoryPeakBytes: 0 });
  });
});

describe("the files of v1", () => {
  test("have the limits, and swap adds nothing", async () => {
    const { kernel, tree } = makeV1();
    await tree.create("ns/a", { ...limits, pidsMax: 20 });
    expect(kernel.file("/m/atoll/ns/a/memory.limit_in_bytes")).toBe(String(64 * MiB));
    expect(kernel.file("/m/atoll/ns/a/memory.memsw.limit_in_bytes")).toBe(String(64 * MiB));
    expect(kernel.file("/c/atoll/ns/a/cpu.cfs_quota_us")).toBe("50000");
    expect(kernel.file("/c/atoll/ns/a/cpu.cfs_period_us")).toBe("100000");
    expect(kernel.file("/p/atoll/ns/a/pids.max")).toBe("20");
  });

  test("controllers that share a mount are one directory, and pids has one only where it is asked for", async () => {
    const { tree } = makeV1();
    expect((await tree.create("ns/a", limits)).directories).toEqual([
      "/m/atoll/ns/a",
      "/c/atoll/ns/a",
      "/f/atoll/ns/a/run",
    ]);
    expect((await tree.create("ns/b", { ...limits, pidsMax: 5 })).directories).toContain("/p/atoll/ns/b");
    expect((await tree.open("ns/a")).directories).not.toContain("/p/atoll/ns/a");
  });

  test("memory can be raised and lowered while it is in use", async () => {
    const { kernel, tree } = makeV1();
    const group = await tree.create("ns/a", limits);
    for (const memoryBytes of [128 * MiB, 32 * MiB, 32 * MiB]) {
      await group.setLimits({ memoryBytes });
      expect(kernel.file("/m/atoll/ns/a/memory.limit_in_bytes")).toBe(String(memoryBytes));
      expect(kernel.file("/m/atoll/ns/a/memory.memsw.limit_in_bytes")).toBe(String(memoryBytes));
    }
    expect(kernel.file("/c/atoll/ns/a/cpu.cfs_quota_us")).toBe("50000");
  });

  test("memory that is in use cannot be taken away", async () => {
    const { kernel, tree } = makeV1();
    const group = await tree.create("ns/a", limits);
    kernel.setFile("/m/atoll/ns/a/memory.usage_in_bytes", String(40 * MiB));
    expect(await codeOf(group.setLimits({ memoryBytes: 20 * MiB }))).toBe("in_use");
  });

  test("a kernel without swap accounting is good enough", async () => {
    const { kernel, tree } = makeV1(["memory.memsw.limit_in_bytes"]);
    await tree.create("ns/a", limits);
    expect(kernel.file("/m/atoll/ns/a/memory.limit_in_bytes")).toBe(String(64 * MiB));
  });

  test("a limit on tasks without a pids controller is refused", async () => {
    const kernel = new FakeCgroupKernel(1, { "/m": ["memory"], "/c": ["cpu"] });
    const tree = new CgroupV1Tree(kernel, { memory: "/m", cpu: "/c" });
    expect(await codeOf(tree.create("ns/a", { ...limits, pidsMax: 5 }))).toBe("unsupported");
    const group = await tree.create("ns/a", limits);
    expect(await codeOf(group.setLimits({ pidsMax: 5 }))).toBe("invalid_state");
    kernel.addProcess("/m/atoll/ns/a", 10);
    await group.killAll({ deadlineMs: 1_000 });
    expect(await group.pids()).toEqual([]);
  });

  test("report usage without the cache that can be dropped", async () => {
    const { kernel, tree } = makeV1();
    const group = await tree.create("ns/a", limits);
    kernel.setFile("/m/atoll/ns/a/memory.usage_in_bytes", "5000\n");
    kernel.setFile("/m/atoll/ns/a/memory.max_usage_in_bytes", "9000\n");
    kernel.setFile("/m/atoll/ns/a/memory.stat", "inactive_file 1\ntotal_inactive_file 3000\n");
    kernel.setFile("/c/atoll/ns/a/cpuacct.usage", "1500000000\n");
    kernel.setFile("/c/atoll/ns/a/cpu.stat", "nr_periods 90\nnr_throttled 40\nthrottled_time 7\n");
    kernel.setFile("/m/atoll/ns/a/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
    expect(await group.usage()).toEqual({
      memoryBytes: 2000,
      memoryPeakBytes: 9000,
      cpuMs: 1500,
      throttledPeriods: 40,
    });
    expect(await group.oomKills()).toBe(3);
  });
});

describe("the files of v2", () => {
  test("have the limits, and swap adds nothing", async () => {
    const { kernel, tree } = makeV2();
    const group = await tree.create("ns/a", { ...limits, pidsMax: 20 });
    expect(group.directories).toEqual(["/u/atoll/ns/a/run"]);
    expect(kernel.file("/u/atoll/ns/a/memory.max")).toBe(String(64 * MiB));
    expect(kernel.file("/u/atoll/ns/a/memory.swap.max")).toBe("0");
    expect(kernel.file("/u/atoll/ns/a/cpu.max")).toBe("50000 100000");
    expect(kernel.file("/u/atoll/ns/a/pids.max")).toBe("20");
  });

  test("are enabled in every group above", async () => {
    const { kernel, tree } = makeV2();
    await tree.create("ns/a", limits);
    await tree.create("ns/b", limits);
    await tree.create("other/c", limits);
    for (const path of ["/u", "/u/atoll", "/u/atoll/ns", "/u/atoll/other"]) {
      expect(kernel.file(`${path}/cgroup.subtree_control`)).toBe("memory cpu pids");
    }
  });

  test("processes beside the namespaces are named as the reason", async () => {
    const { kernel, tree } = makeV2();
    kernel.addProcess("/u", 4);
    await expect(tree.create("ns/a", limits)).rejects.toMatchObject({
      code: "unsupported",
      message: expect.stringContaining("processes of its own"),
    });
    expect(kernel.groups).toEqual([]);
  });

  test("older kernels lack cgroup.kill, memory.peak and swap accounting", async () => {
    const { kernel, tree } = makeV2(["cgroup.kill", "memory.peak", "memory.swap.max"]);
    const group = await tree.create("ns/a", limits);
    kernel.addProcess("/u/atoll/ns/a", 10, 11);
    kernel.setFile("/u/atoll/ns/a/memory.current", "7000\n");
    expect(await group.usage()).toMatchObject({ memoryPeakBytes: 7000 });
    await group.killAll({ deadlineMs: 60_000 });
    expect(await group.pids()).toEqual([]);
  });

  test("memory that is in use cannot be taken away", async () => {
    const { kernel, tree } = makeV2();
    const group = await tree.create("ns/a", limits);
    kernel.setFile("/u/atoll/ns/a/memory.current", String(40 * MiB));
    expect(await codeOf(group.setLimits({ memoryBytes: 20 * MiB }))).toBe("in_use");
    await group.setLimits({ memoryBytes: 50 * MiB, cpus: 2 });
    expect(kernel.file("/u/atoll/ns/a/memory.max")).toBe(String(50 * MiB));
    expect(kernel.file("/u/atoll/ns/a/cpu.max")).toBe("200000 100000");
  });

  test("report usage without the cache that can be dropped", async () => {
    const { kernel, tree } = makeV2();
    const group = await tree.create("ns/a", limits);
    kernel.setFile("/u/atoll/ns/a/memory.current", "5000\n");
    kernel.setFile("/u/atoll/ns/a/memory.peak", "9000\n");
    kernel.setFile("/u/atoll/ns/a/memory.stat", "anon 1\ninactive_file 3000\n");
    kernel.setFile("/u/atoll/ns/a/cpu.stat", "usage_usec 1500000\nuser_usec 1\nnr_periods 90\nnr_throttled 40\n");
    kernel.setFile("/u/atoll/ns/a/memory.events", "low 0\noom 9\noom_kill 3\n");
    expect(await group.usage()).toEqual({
      memoryBytes: 2000,
      memoryPeakBytes: 9000,
      cpuMs: 1500,
      throttledPeriods: 40,
    });
    expect(await group.oomKills()).toBe(3);
  });

  test("freezing and thawing are written to the kernel", async () => {
    const { kernel, tree } = makeV2();
    const group = await tree.create("ns/a", limits);
    await group.freeze();
    expect(kernel.file("/u/atoll/ns/a/cgroup.freeze")).toBe("1");
    await group.thaw();
    expect(kernel.file("/u/atoll/ns/a/cgroup.freeze")).toBe("0");
  });
});
