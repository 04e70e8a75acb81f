/** What one group of processes may use together. */
export interface CgroupLimits {
  /** Includes swap: a process that needs more memory is killed. */
  memoryBytes: number;
  /** 1 means the time of one core. */
  cpus: number;
  /** The limit of tasks, which include threads. If absent, the limit is the host's. */
  pidsMax?: number;
}

export interface CgroupUsage {
  /** The working set: memory without file cache that the kernel can drop at once. */
  memoryBytes: number;
  /** The highest value ever, with file cache. */
  memoryPeakBytes: number;
  /** Undefined if this host does not account for it. */
  cpuMs: number | undefined;
  /**
   * Periods of `cpuPeriodMs` at the end of which the group had to wait for the next. Undefined if this host does not
   * report them.
   */
  throttledPeriods: number | undefined;
}

/** A named group of processes, whether or not it exists: the methods that end things are idempotent. */
export interface Cgroup {
  readonly name: string;
  /**
   * A process joins by writing to `cgroup.procs` in each of these: one directory with v2, one per controller with v1.
   */
  readonly directories: string[];
  /**
   * The directory that can be frozen from outside, with all processes in it; the directory above it belongs to the
   * group too. Undefined if this host has no freezer.
   */
  readonly freezer: string | undefined;
  usage(): Promise<CgroupUsage>;
  /** Returns the same value as `usage`, for a fraction of its cost. */
  cpuMs(): Promise<CgroupUsage["cpuMs"]>;
  /** Returns how many processes the kernel killed because the memory was used up. `remove` removes this count. */
  oomKills(): Promise<number>;
  pids(): Promise<number[]>;
  /**
   * Sets limits of a running group. Absent limits stay as they are. Rejects with `in_use` when more memory is in use
   * than allowed and cannot be freed.
   */
  setLimits(limits: Partial<CgroupLimits>): Promise<void>;
  /**
   * Resolves when every process is frozen. When that takes too long, it rejects with `timed_out` and everything runs
   * again.
   */
  freeze(): Promise<void>;
  thaw(): Promise<void>;
  /** Sends SIGKILL to all processes, frozen or not, and does not wait for their end. */
  kill(): Promise<void>;
  /** Resolves when no process is left, frozen or not. Rejects with `timed_out`, naming those that are. */
  killAll(options: { deadlineMs: number }): Promise<void>;
  /**
   * Removes the group, and the directories of its namespace when it was the last. Rejects with `in_use` while it has
   * processes.
   */
  remove(): Promise<void>;
}

/**
 * All our groups on this host. A name has two parts, `<namespace>/<group>`: each engine has a namespace of its own and
 * touches no other.
 */
export interface CgroupTree {
  readonly version: 1 | 2;
  /** The directories that groups are made below. */
  readonly roots: string[];
  create(name: string, limits: CgroupLimits): Promise<Cgroup>;
  /** Opens a group, also if it does not exist. */
  open(name: string): Promise<Cgroup>;
  /** Returns the names of all groups of a namespace, also those of earlier engines. */
  list(namespace: string): Promise<string[]>;
  /**
   * Sets the CPU weight of the groups of all namespaces together, against everything else on the host, while CPU time
   * is short: 1 to 10,000, where an ordinary group has 100. It applies at once, and to later groups. All engines of a
   * host share it: the last call counts.
   */
  setWeight(weight: number): Promise<void>;
}

/** The kernel limits the CPU time in each period of this length. */
export const cpuPeriodMs = 100;

/** Processes are one level below their group, so that the launcher can leave that level and is still in the group. */
export const membersDirectory = "run";

/** The directory of all namespaces, under the root of a controller. */
export const treeDirectory = "atoll";

const segment = /^[A-Za-z0-9_][A-Za-z0-9._-]*$/;

/** Guards the paths made from names: a name is never longer or higher than its two parts. */
export function assertGroupName(name: string): void {
  const parts = name.split("/");
  if (parts.length !== 2 || !parts.every((part) => segment.test(part))) {
    throw new Error(`${JSON.stringify(name)} is not the name of a cgroup: it must be <namespace>/<group>`);
  }
}
