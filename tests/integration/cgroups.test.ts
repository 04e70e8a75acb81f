import { readdir, readFile } from "node:fs/promises";
import { dirname } from "node:path";
import {
  type Cgroup,
  type CgroupLimits,
  type CgroupTree,
  detectCgroups,
  type HostProcess,
  startHostProcess,
} from "@atoll/host";
import { afterEach, beforeAll, describe, expect, test } from "vitest";

const MiB = 1024 * 1024;
const namespace = `test-${process.pid}`;
const started: HostProcess[] = [];
let tree: CgroupTree;
let count = 0;

beforeAll(async () => {
  const found = await detectCgroups();
  if (found === undefined) throw new Error("This machine has no cgroups that can limit memory and CPU time");
  const wanted = process.env["ATOLL_TEST_CGROUPS"];
  if (wanted !== undefined && wanted !== String(found.version)) {
    throw new Error(`This run needs cgroups of version ${wanted}, and the machine has version ${found.version}`);
  }
  tree = found;
});

afterEach(async () => {
  for (const name of await tree.list(namespace)) {
    const group = await tree.open(name);
    await group.killAll({ deadlineMs: 60_000 });
    await group.remove();
  }
  for (const process of started.splice(0)) await process.wait();
});

const create = (limits: Partial<CgroupLimits> = {}): Promise<Cgroup> =>
  tree.create(`${namespace}/g${count++}`, { memoryBytes: 256 * MiB, cpus: 1, ...limits });

/** Starts a shell that joins the group and then runs the script. */
async function startIn(group: Cgroup, script: string): Promise<HostProcess> {
  const join = group.directories.map((directory) => `echo $$ > ${directory}/cgroup.procs`).join(" && ");
  const process = await startHostProcess("bash", ["-c", `${join} || exit 99\n${script}`], {
    signal: new AbortController().signal,
  });
  started.push(process);
  return process;
}

async function textOf(process: HostProcess): Promise<string> {
  let text = "";
  for await (const { data } of process) text += data.toString();
  return text;
}

async function firstLine(process: HostProcess): Promise<string> {
  for await (const { data } of process) return data.toString().trim();
  throw new Error("The process printed nothing");
}

describe("memory", () => {
  test("a process that allocates more than the limit is killed, and the kill is counted", async () => {
    const group = await create({ memoryBytes: 64 * MiB });
    const hog = await startIn(group, `exec ${process.execPath} -e "Buffer.alloc(300 * 1024 * 1024, 1)"`);
    hog.discardOutput();
    expect(await hog.wait()).toMatchObject({ signal: "SIGKILL" });
    expect(await group.oomKills()).toBe(1);
    expect((await group.usage()).memoryPeakBytes).toBeLessThanOrEqual(64 * MiB);
  });

  test("a process below the limit lives, and its usage is reported", async () => {
    const group = await create({ memoryBytes: 128 * MiB });
    const process = await startIn(group, "x=$(head -c 30M /dev/zero | tr '\\0' x); echo up; sleep 1000; echo $x");
    expect(await firstLine(process)).toBe("up");
    expect(await group.oomKills()).toBe(0);
    const { memoryBytes } = await group.usage();
    expect(memoryBytes).toBeGreaterThan(25 * MiB);
    expect(memoryBytes).toBeLessThan(128 * MiB);
  });

  test("the limit can be changed while processes run", async () => {
    const group = await create({ memoryBytes: 32 * MiB });
    await group.setLimits({ memoryBytes: 256 * MiB });
    const process = await startIn(group, "x=$(head -c 60M /dev/zero | tr '\\0' x); echo up; sleep 1000; echo $x");
    expect(await firstLine(process)).toBe("up");
    expect(await group.oomKills()).toBe(0);
    await expect(group.setLimits({ memoryBytes: 32 * MiB })).rejects.toMatchObject({ code: "in_use" });
  });
});

describe("CPU time", () => {
  test("the tree of all groups has the given weight", async () => {
    // Servers set this weight, too, and some may run beside this test.
    await tree.setWeight(20);
    const group = await create();
    const texts = await Promise.all(
      group.directories.map(async (directory) => {
        const above = directory.slice(0, directory.indexOf(`/${namespace}/`));
        const files = ["cpu.shares", "cpu.weight"].map((file) => readFile(`${above}/${file}`, "utf8").catch(() => ""));
        return (await Promise.all(files)).join("").trim();
      }),
    );
    expect(texts.filter((text) => text !== "")).toEqual([tree.version === 1 ? "205" : "20"]);
  });

  test("a process that wants more than the limit is throttled", async () => {
    const group = await create({ cpus: 0.1 });
    const process = await startIn(group, "while :; do :; done");
    process.discardOutput();
    const throttled = async (): Promise<number> => {
      // In version 2 the processes are one level below the group that has their limits.
      const places = group.directories.flatMap((directory) => [directory, dirname(directory)]);
      const stats = await Promise.all(
        places.map((directory) => readFile(`${directory}/cpu.stat`, "utf8").catch(() => "")),
      );
      return Number(/^nr_throttled (\d+)$/m.exec(stats.join("\n"))?.[1]);
    };
    await expect.poll(throttled).toBeGreaterThan(2);
    expect((await group.usage()).cpuMs).toBeGreaterThan(0);
  });
});

describe("tasks", () => {
  test("a fork beyond the limit fails", async () => {
    const group = await create({ pidsMax: 10 });
    const fork = "my $pid = fork(); die $! unless defined $pid; unless ($pid) { sleep 1000; exit }";
    const process = await startIn(group, `exec perl -e 'for (1..30) { ${fork} }'`);
    expect(await textOf(process)).toContain("Resource temporarily unavailable");
    expect((await group.pids()).length).toBe(9);
  });
});

describe("the end", () => {
  test("a kill ends processes that fork as fast as they can", async () => {
    const group = await create({ pidsMax: 100, cpus: 2 });
    // Each process starts two copies of itself and goes on, whether or not its parent lives.
    const bomb = await startIn(group, "b() { b & b & wait; b; }; trap '' TERM HUP; b 2>/dev/null");
    bomb.discardOutput();
    await expect.poll(async () => (await group.pids()).length).toBeGreaterThan(50);
    await group.killAll({ deadlineMs: 60_000 });
    expect(await group.pids()).toEqual([]);
  });

  test("a kill ends frozen processes", async () => {
    const group = await create();
    const process = await startIn(group, "echo up; while :; do :; done");
    await firstLine(process);
    await group.freeze();
    await group.killAll({ deadlineMs: 60_000 });
    expect(await process.wait()).toMatchObject({ signal: "SIGKILL" });
  });

  test("frozen processes do not run until they are thawed", async () => {
    const group = await create();
    const process = await startIn(group, "trap 'exit 9' TERM; echo up; while :; do sleep 0.01; done");
    await firstLine(process);
    await group.freeze();
    await process.kill("SIGTERM");
    expect(await group.pids()).toContain(process.pid);
    await group.thaw();
    expect(await process.wait()).toMatchObject({ exitCode: 9 });
  });

  test("a group in use is not removed, and an empty one is removed completely", async () => {
    const group = await create({ pidsMax: 50 });
    const process = await startIn(group, "sleep 1000 & echo up; wait");
    await firstLine(process);
    await expect(group.remove()).rejects.toMatchObject({ code: "in_use" });
    await group.killAll({ deadlineMs: 60_000 });
    await group.remove();
    await group.remove();
    for (const directory of group.directories) {
      await expect(readdir(directory)).rejects.toMatchObject({ code: "ENOENT" });
      await expect(readdir(directory.replace(/\/[^/]*$/, ""))).rejects.toMatchObject({ code: "ENOENT" });
    }
  });

  test("a group is found again by its name", async () => {
    const group = await create({ pidsMax: 50 });
    const process = await startIn(group, "echo up; sleep 1000");
    await firstLine(process);
    expect(await tree.list(namespace)).toEqual([group.name]);
    const opened = await tree.open(group.name);
    expect(opened.directories).toEqual(group.directories);
    expect(await opened.pids()).toContain(process.pid);
  });
});
