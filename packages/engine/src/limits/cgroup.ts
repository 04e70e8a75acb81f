/** What one group of processes may use together. */
export interface CgroupLimits {
  /** Swap is not added to it: what does not fit is killed. */
  memoryBytes: number;
  /** 1 is one core's worth of time. */
  cpus: number;
  /** Tasks, that is threads too. Absent: as many as the host allows. */
  pidsMax?: number;
}

export interface CgroupUsage {
  /** Working set: without file cache that the kernel can drop at once. */
  memoryBytes: number;
  /** The highest ever, with file cache. */
  memoryPeakBytes: number;
  /** Undefined: this host does not account for it. */
  cpuMs: number | undefined;
  /**
   * Periods of `cpuPeriodMs` at the end of which the group had to wait for the next. Undefined: this host does not
   * tell.
   */
  throttledPeriods: number | undefined;
}

/** A named group of processes, whether or not it is there: the methods that end things are idempotent. */
export interface Cgroup {
  readonly name: string;
  /**
   * Where a process has to write itself into `cgroup.procs` to join: one directory with v2, one per controller with v1.
   */
  readonly directories: string[];
  /**
   * The one of them that can be frozen with all that is in it, by whoever is outside; the directory above it is the
   * group's too. Undefined: this host has no freezer.
   */
  readonly freezer: string | undefined;
  usage(): Promise<CgroupUsage>;
  /** As in `usage`, for a fraction of what that costs. */
  cpuMs(): Promise<CgroupUsage["cpuMs"]>;
  /** Processes that the kernel killed because the memory was used up. Gone with `remove`. */
  oomKills(): Promise<number>;
  pids(): Promise<number[]>;
  /**
   * Live. What is absent stays as it is. Rejects with `in_use` when more memory is in use than allowed and cannot be
   * taken back.
   */
  setLimits(limits: Partial<CgroupLimits>): Promise<void>;
  /**
   * Resolves when every process stands still. Rejects with `timed_out`, and everything runs again, when that takes too
   * long.
   */
  freeze(): Promise<void>;
  thaw(): Promise<void>;
  /** Sends everybody SIGKILL, frozen or not, and does not wait for their end. */
  kill(): Promise<void>;
  /** Resolves when nobody is left, frozen or not. Rejects with `timed_out`, naming who is. */
  killAll(options: { deadlineMs: number }): Promise<void>;
  /**
   * The group itself, and the directories of its namespace when it was the last. Rejects with `in_use` while there are
   * processes.
   */
  remove(): Promise<void>;
}

/**
 * All groups of ours on this host. A name has two parts, `<namespace>/<group>`: each engine has a namespace of its own
 * and touches no other.
 */
export interface CgroupTree {
  readonly version: 1 | 2;
  /** The directories that groups are made below. */
  readonly roots: string[];
  create(name: string, limits: CgroupLimits): Promise<Cgroup>;
  /** Also for a name that is not there. */
  open(name: string): Promise<Cgroup>;
  /** The names of all groups of a namespace, of whoever left them. */
  list(namespace: string): Promise<string[]>;
  /**
   * What the groups of all namespaces together weigh against everything else on the host while there is less CPU time
   * than is wanted: 1 to 10,000, and an ordinary group has 100. In force at once, and for groups that are made later.
   * All engines of a host share it: the last to say has its way.
   */
  setWeight(weight: number): Promise<void>;
}

/** The CPU time that is allowed is dealt out anew this often. */
export const cpuPeriodMs = 100;

/** Processes are one level below their group: who watches over them can leave it and is still in the group. */
export const membersDirectory = "run";

/** The directory of all namespaces, under the root of a controller. */
export const treeDirectory = "atoll";

const segment = /^[A-Za-z0-9_][A-Za-z0-9._-]*$/;

/** Guards the paths made from names: a name is never longer or higher than its two parts. */
export function assertGroupName(name: string): void {
  const parts = name.split("/");
  if (parts.length !== 2 || !parts.every((part) => segment.test(part))) {
    throw new Error(`${JSON.stringify(name)} is not the name of a cgroup: it must read <namespace>/<group>`);
  }
}
