import { dirname, join } from "node:path";
import { SandboxError } from "@atoll/protocol";
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

const periodUs = cpuPeriodMs * 1000;
/** The default shares of a group, which are the least that a group gets here. */
const ordinaryShares = 1024;
const fewestShares = 2;
const freezeDeadlineMs = 2_000;

/** The mount points of the controllers that we use. Several controllers may share a mount. */
export interface V1Mounts {
  memory: string;
  cpu: string;
  cpuacct?: string;
  freezer?: string;
  pids?: string;
}
type Controller = keyof V1Mounts;

/** The older hierarchy: each controller has a tree of its own, and a group is a directory of the same name in each. */
export class CgroupV1Tree implements CgroupTree {
  readonly version = 1;
  readonly #kernel: CgroupKernel;
  readonly #mounts: V1Mounts;
  readonly #weight: TreeWeight;

  constructor(kernel: CgroupKernel, mounts: V1Mounts) {
    this.#kernel = kernel;
    this.#mounts = mounts;
    this.#weight = new TreeWeight(kernel, join(mounts.cpu, treeDirectory, "cpu.shares"));
  }

  get roots(): string[] {
    const mounts: string[] = Object.values(this.#mounts);
    return [...new Set(mounts)];
  }

  async create(name: string, limits: CgroupLimits): Promise<Cgroup> {
    assertGroupName(name);
    const { pids, ...always } = this.#mounts;
    if (limits.pidsMax !== undefined && pids === undefined) {
      throw new SandboxError("unsupported", `Cannot create cgroup ${name}: the pids controller is not mounted`);
    }
    const group = this.#group(name, limits.pidsMax === undefined ? always : this.#mounts);
    await using undo = new Cleanup();
    try {
      undo.defer(await this.#makeDirectories(group));
      await group.setLimits(limits);
    } catch (error) {
      throw cannotCreate(name, error);
    }
    undo.release();
    return group;
  }

  async open(name: string): Promise<Cgroup> {
    assertGroupName(name);
    const found = await Promise.all(
      Object.entries(this.#mounts).map(async ([controller, mount]: [string, string]) => {
        const members = await this.#kernel.read(join(mount, treeDirectory, name, "cgroup.procs"));
        return members === undefined ? [] : [[controller, mount]];
      }),
    );
    return this.#group(name, Object.fromEntries(found.flat()));
  }

  async list(namespace: string): Promise<string[]> {
    const found = await Promise.all(
      this.roots.map((mount) => this.#kernel.children(join(mount, treeDirectory, namespace))),
    );
    return [...new Set(found.flat())].map((name) => `${namespace}/${name}`);
  }

  setWeight(weight: number): Promise<void> {
    return this.#weight.set(String(Math.max(fewestShares, Math.round((weight * ordinaryShares) / 100))));
  }

  #group(name: string, mounts: Partial<V1Mounts>): CgroupV1 {
    return new CgroupV1(this.#kernel, name, mounts);
  }

  /** Makes all directories or none. Returns a function that removes them again. */
  async #makeDirectories({ name, tops, freezer }: CgroupV1): Promise<() => Promise<void>> {
    const made: string[] = [];
    let isNewTree = false;
    const results = await Promise.allSettled(
      tops.map(async (directory) => {
        isNewTree = (await makeGroupDirectory(this.#kernel, directory)) || isNewTree;
        made.push(directory);
        if (freezer !== undefined && dirname(freezer) === directory) await this.#kernel.makeDirectory(freezer);
      }),
    );
    const undo = (): Promise<void> => removeGroupDirectories(this.#kernel, name, made);
    try {
      const failure = results.find((result) => result.status === "rejected");
      if (failure !== undefined) throw failure.reason;
      await this.#weight.reapply({ isNewTree });
      return undo;
    } catch (error) {
      await undo();
      throw error;
    }
  }
}

class CgroupV1 implements Cgroup {
  readonly name: string;
  /** The group's directory in each controller's tree. */
  readonly tops: string[];
  readonly directories: string[];
  readonly freezer: string | undefined;
  readonly #kernel: CgroupKernel;
  readonly #mounts: Partial<V1Mounts>;

  constructor(kernel: CgroupKernel, name: string, mounts: Partial<V1Mounts>) {
    this.#kernel = kernel;
    this.name = name;
    this.#mounts = mounts;
    // A mount that several controllers share is one directory.
    this.tops = [...new Set(Object.values(mounts))].map((mount) => join(mount, treeDirectory, name));
    const freezerTop = mounts.freezer === undefined ? undefined : join(mounts.freezer, treeDirectory, name);
    this.freezer = freezerTop === undefined ? undefined : join(freezerTop, membersDirectory);
    this.directories = this.tops.map((top) => (top === freezerTop ? join(top, membersDirectory) : top));
  }

  async usage(): Promise<CgroupUsage> {
    const [used, peak, memory, cpu, throttling] = await Promise.all([
      this.#read("memory", "memory.usage_in_bytes"),
      this.#read("memory", "memory.max_usage_in_bytes"),
      this.#read("memory", "memory.stat"),
      this.cpuMs(),
      this.#read("cpu", "cpu.stat"),
    ]);
    return {
      memoryBytes: Math.max(0, Number(used ?? 0) - (valueOf(memory, "total_inactive_file") ?? 0)),
      memoryPeakBytes: Number(peak ?? 0),
      cpuMs: cpu,
      throttledPeriods: valueOf(throttling, "nr_throttled"),
    };
  }

  async cpuMs(): Promise<number | undefined> {
    const ns = await this.#read("cpuacct", "cpuacct.usage");
    return ns === undefined ? undefined : Math.round(Number(ns) / 1_000_000);
  }

  async oomKills(): Promise<number> {
    return valueOf(await this.#read("memory", "memory.oom_control"), "oom_kill") ?? 0;
  }

  pids(): Promise<number[]> {
    return pidsOf(this.#kernel, this.tops);
  }

  async setLimits({ memoryBytes, cpus, pidsMax }: Partial<CgroupLimits>): Promise<void> {
    await Promise.all([
      memoryBytes === undefined ? undefined : this.#limitMemory(memoryBytes),
      cpus === undefined ? undefined : this.#limitCpu(cpus),
      pidsMax === undefined ? undefined : this.#write("pids", "pids.max", String(pidsMax)),
    ]);
  }

  async freeze(): Promise<void> {
    const isFrozen = async (): Promise<boolean> => {
      // The state is written again each time, because a process that forks during the freeze can leave the group half
      // frozen.
      await this.#write("freezer", "freezer.state", "FROZEN");
      return (await this.#read("freezer", "freezer.state"))?.trim() === "FROZEN";
    };
    if (await pollUntil(isFrozen, { deadlineMs: freezeDeadlineMs })) return;
    await this.thaw();
    throw notFrozen(this.name);
  }

  thaw(): Promise<void> {
    return this.#write("freezer", "freezer.state", "THAWED");
  }

  async kill(): Promise<void> {
    await this.#killOnce(0);
  }

  async killAll({ deadlineMs }: { deadlineMs: number }): Promise<void> {
    let round = 0;
    const isEmpty = await pollUntil(() => this.#killOnce(round++), { deadlineMs });
    if (!isEmpty) throw stillAlive(this.name, await this.pids());
  }

  remove(): Promise<void> {
    return removeGroupDirectories(this.#kernel, this.name, this.tops);
  }

  /**
   * Returns true when no process was left. From the second round on the group is frozen, in case a process forks faster
   * than we kill. A frozen process takes its SIGKILL when it is thawed, before it runs again.
   */
  async #killOnce(round: number): Promise<boolean> {
    if ((await this.pids()).length === 0) return true;
    const hasFreezer = this.#mounts.freezer !== undefined;
    if (hasFreezer && round > 0) await this.#write("freezer", "freezer.state", "FROZEN");
    for (const pid of await this.pids()) this.#kernel.kill(pid);
    if (hasFreezer) await Promise.all([this.thaw(), this.#thawMembers()]);
    return false;
  }

  /** The launcher may have frozen the members' group on its own. */
  async #thawMembers(): Promise<void> {
    await this.#write("freezer", join(membersDirectory, "freezer.state"), "THAWED").catch((error: unknown) => {
      // The group of an older version has no group below it.
      if (!hasErrno(error, "ENOENT")) throw error;
    });
  }

  /**
   * The memory limit may never be above the limit of memory and swap: it is raised after that one, and lowered before
   * it.
   */
  async #limitMemory(bytes: number): Promise<void> {
    const before = Number(await this.#read("memory", "memory.limit_in_bytes"));
    const limit = async (): Promise<void> => {
      try {
        await this.#write("memory", "memory.limit_in_bytes", String(bytes));
      } catch (error) {
        // The group has no more memory that the kernel can free.
        if (hasErrno(error, "EBUSY")) throw memoryInUse(this.name, bytes, (await this.usage()).memoryBytes);
        throw error;
      }
    };
    const limitWithSwap = (): Promise<void> =>
      this.#write("memory", "memory.memsw.limit_in_bytes", String(bytes)).catch((error: unknown) => {
        // A kernel without swap accounting has no such file.
        if (!hasErrno(error, "ENOENT")) throw error;
      });
    for (const step of bytes > before ? [limitWithSwap, limit] : [limit, limitWithSwap]) await step();
  }

  async #limitCpu(cpus: number): Promise<void> {
    await this.#write("cpu", "cpu.cfs_period_us", String(periodUs));
    await this.#write("cpu", "cpu.cfs_quota_us", String(Math.round(cpus * periodUs)));
  }

  async #read(controller: Controller, file: string): Promise<string | undefined> {
    const mount = this.#mounts[controller];
    return mount === undefined ? undefined : this.#kernel.read(join(mount, treeDirectory, this.name, file));
  }

  async #write(controller: Controller, file: string, value: string): Promise<void> {
    const mount = this.#mounts[controller];
    if (mount === undefined) {
      throw new SandboxError(
        "invalid_state",
        `Cannot set ${file} of cgroup ${this.name}: the ${controller} controller is not mounted`,
      );
    }
    await this.#kernel.write(join(mount, treeDirectory, this.name, file), value);
  }
}
