import { dirname, join } from "node:path";
import { Cleanup } from "../support/cleanup.ts";
import { hasErrno } from "../support/errno.ts";
import { pollUntil } from "../support/poll-until.ts";
import {
  cannotCreate,
  makeGroupDirectory,
  memoryInUse,
  notFrozen,
  pidsOf,
  removeGroupDirectories,
  stillAlive,
  valueOf,
} from "./cgroup-directory.ts";
import type { CgroupKernel } from "./cgroup-kernel.ts";
import {
  assertGroupName,
  cpuPeriodMs,
  membersDirectory,
  treeDirectory,
  type Cgroup,
  type CgroupLimits,
  type CgroupTree,
  type CgroupUsage,
} from "./cgroup.ts";
import { TreeWeight } from "./tree-weight.ts";

const controllers = ["memory", "cpu", "pids"];
const periodUs = cpuPeriodMs * 1000;
const freezeDeadlineMs = 2_000;

/** The unified hierarchy: one directory per group. The kernel's admin-guide/cgroup-v2 describes the files. */
export class CgroupV2Tree implements CgroupTree {
  readonly version = 2;
  readonly #kernel: CgroupKernel;
  readonly #mount: string;
  readonly #weight: TreeWeight;

  constructor(kernel: CgroupKernel, mount: string) {
    this.#kernel = kernel;
    this.#mount = mount;
    this.#weight = new TreeWeight(kernel, join(mount, treeDirectory, "cpu.weight"));
  }

  get roots(): string[] {
    return [this.#mount];
  }

  async create(name: string, limits: CgroupLimits): Promise<Cgroup> {
    assertGroupName(name);
    const group = this.#group(name);
    await using undo = new Cleanup();
    try {
      const isNewTree = await makeGroupDirectory(this.#kernel, group.directory);
      undo.defer(() => group.remove());
      await this.#kernel.makeDirectory(group.freezer);
      await group.setLimits(limits).catch(async (error: unknown) => {
        if (!hasErrno(error, "ENOENT")) throw error;
        await this.#enableControllers(group.directory);
        await group.setLimits(limits);
      });
      await this.#weight.reapply({ isNewTree });
    } catch (error) {
      throw cannotCreate(name, error);
    }
    undo.release();
    return group;
  }

  async open(name: string): Promise<Cgroup> {
    assertGroupName(name);
    return this.#group(name);
  }

  async list(namespace: string): Promise<string[]> {
    const names = await this.#kernel.children(join(this.#mount, treeDirectory, namespace));
    return names.map((name) => `${namespace}/${name}`);
  }

  setWeight(weight: number): Promise<void> {
    return this.#weight.set(String(weight));
  }

  #group(name: string): CgroupV2 {
    return new CgroupV2(this.#kernel, name, join(this.#mount, treeDirectory, name));
  }

  /**
   * Enables the controllers in every group above, without which a group has none of their files. The engine that makes
   * the first group of a namespace must do that.
   */
  async #enableControllers(directory: string): Promise<void> {
    const offered = ((await this.#kernel.read(join(this.#mount, "cgroup.controllers"))) ?? "").trim().split(" ");
    const wanted = controllers.filter((name) => offered.includes(name));
    const namespace = dirname(directory);
    for (const parent of [this.#mount, dirname(namespace), namespace]) {
      await this.#kernel.write(join(parent, "cgroup.subtree_control"), wanted.map((name) => `+${name}`).join(" "));
    }
  }
}

class CgroupV2 implements Cgroup {
  readonly name: string;
  readonly directory: string;
  readonly directories: string[];
  readonly freezer: string;
  readonly #kernel: CgroupKernel;

  constructor(kernel: CgroupKernel, name: string, directory: string) {
    this.#kernel = kernel;
    this.name = name;
    this.directory = directory;
    this.freezer = join(directory, membersDirectory);
    this.directories = [this.freezer];
  }

  async usage(): Promise<CgroupUsage> {
    const [current, peak, memory, cpu] = await Promise.all([
      this.#read("memory.current"),
      // The kernel has this file since Linux 5.19.
      this.#read("memory.peak"),
      this.#read("memory.stat"),
      this.#read("cpu.stat"),
    ]);
    const usedBytes = Number(current ?? 0);
    return {
      memoryBytes: Math.max(0, usedBytes - (valueOf(memory, "inactive_file") ?? 0)),
      memoryPeakBytes: Number(peak ?? usedBytes),
      cpuMs: cpuMsOf(cpu),
      throttledPeriods: valueOf(cpu, "nr_throttled"),
    };
  }

  async cpuMs(): Promise<number | undefined> {
    return cpuMsOf(await this.#read("cpu.stat"));
  }

  async oomKills(): Promise<number> {
    return valueOf(await this.#read("memory.events"), "oom_kill") ?? 0;
  }

  pids(): Promise<number[]> {
    return pidsOf(this.#kernel, [this.directory]);
  }

  async setLimits({ memoryBytes, cpus, pidsMax }: Partial<CgroupLimits>): Promise<void> {
    await Promise.all([
      memoryBytes === undefined ? undefined : this.#limitMemory(memoryBytes),
      cpus === undefined ? undefined : this.#write("cpu.max", `${Math.round(cpus * periodUs)} ${periodUs}`),
      pidsMax === undefined ? undefined : this.#write("pids.max", String(pidsMax)),
    ]);
  }

  async freeze(): Promise<void> {
    await this.#write("cgroup.freeze", "1");
    const isFrozen = async (): Promise<boolean> => valueOf(await this.#read("cgroup.events"), "frozen") === 1;
    if (await pollUntil(isFrozen, { deadlineMs: freezeDeadlineMs })) return;
    await this.thaw();
    throw notFrozen(this.name);
  }

  thaw(): Promise<void> {
    return this.#write("cgroup.freeze", "0");
  }

  /** SIGKILL reaches frozen processes in this hierarchy. */
  async kill(): Promise<void> {
    await this.#killOnce();
  }

  async killAll({ deadlineMs }: { deadlineMs: number }): Promise<void> {
    const isEmpty = await pollUntil(() => this.#killOnce(), { deadlineMs });
    if (!isEmpty) throw stillAlive(this.name, await this.pids());
  }

  remove(): Promise<void> {
    return removeGroupDirectories(this.#kernel, this.name, [this.directory]);
  }

  /** Returns true when no process was left. */
  async #killOnce(): Promise<boolean> {
    const pids = await this.pids();
    if (pids.length === 0) return true;
    try {
      await this.#write("cgroup.kill", "1");
    } catch (error) {
      // The kernel is older than Linux 5.14. A process that is forked in between is found in the next round.
      if (!hasErrno(error, "ENOENT")) throw error;
      for (const pid of pids) this.#kernel.kill(pid);
    }
    return false;
  }

  async #limitMemory(bytes: number): Promise<void> {
    // Otherwise the kernel would free memory by killing.
    const { memoryBytes: usedBytes } = await this.usage();
    if (bytes < usedBytes) throw memoryInUse(this.name, bytes, usedBytes);
    await this.#write("memory.max", String(bytes));
    await this.#write("memory.swap.max", "0").catch((error: unknown) => {
      // A kernel without swap accounting has no such file.
      if (!hasErrno(error, "ENOENT")) throw error;
    });
  }

  #read(file: string): Promise<string | undefined> {
    return this.#kernel.read(join(this.directory, file));
  }

  #write(file: string, value: string): Promise<void> {
    return this.#kernel.write(join(this.directory, file), value);
  }
}

function cpuMsOf(stat: string | undefined): number | undefined {
  const us = valueOf(stat, "usage_usec");
  return us === undefined ? undefined : Math.round(us / 1000);
}
