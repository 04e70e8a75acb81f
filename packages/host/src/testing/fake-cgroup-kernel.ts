import { dirname } from "node:path";
import type { CgroupKernel } from "../cgroups/cgroup-kernel.ts";

interface Group {
  files: Map<string, string>;
  pids: Set<number>;
}

const unlimited = "9223372036854771712";

const v1Files: Record<string, Record<string, string>> = {
  memory: {
    "memory.limit_in_bytes": unlimited,
    "memory.memsw.limit_in_bytes": unlimited,
    "memory.usage_in_bytes": "0",
    "memory.max_usage_in_bytes": "0",
    "memory.stat": "cache 0\ntotal_inactive_file 0\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
  },
  cpu: {
    "cpu.shares": "1024",
    "cpu.cfs_period_us": "100000",
    "cpu.cfs_quota_us": "-1",
    "cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
  },
  cpuacct: { "cpuacct.usage": "0" },
  freezer: { "freezer.state": "THAWED" },
  pids: { "pids.max": "max" },
};

const v2Files: Record<string, Record<string, string>> = {
  memory: {
    "memory.max": "max",
    "memory.swap.max": "max",
    "memory.current": "0",
    "memory.peak": "0",
    "memory.stat": "anon 0\ninactive_file 0\n",
    "memory.events": "low 0\noom 0\noom_kill 0\n",
  },
  cpu: {
    "cpu.weight": "100",
    "cpu.max": "max 100000",
    "cpu.stat": "usage_usec 0\nuser_usec 0\nnr_periods 0\nnr_throttled 0\n",
  },
  pids: { "pids.max": "max" },
};

/**
 * Implements the kernel's part of cgroups in memory, with the rules that can be broken: files exist only with their
 * controllers, limits depend on each other, groups that are in use cannot be removed, and frozen processes do not die
 * in v1.
 */
export class FakeCgroupKernel implements CgroupKernel {
  /** Process ids that no signal ends. */
  readonly immortal = new Set<number>();
  /** How often each removal is refused before it succeeds. */
  removalsRefused = 0;
  /** Called with each SIGKILL, before it works: a place to fork. */
  onKill: (pid: number) => void = () => undefined;
  readonly #groups = new Map<string, Group>();
  readonly #version: 1 | 2;
  readonly #refusals = new Map<string, number>();
  /** File names that this kernel does not have. */
  readonly #without: ReadonlySet<string>;
  /** v1: the controllers of each root. */
  readonly #roots: Record<string, string[]>;

  constructor(version: 1 | 2, roots: Record<string, string[]>, without: string[] = []) {
    this.#version = version;
    this.#roots = roots;
    this.#without = new Set(without);
    for (const [path, controllers] of Object.entries(roots)) {
      const files = new Map([["cgroup.procs", ""]]);
      if (version === 2) {
        files.set("cgroup.controllers", `${controllers.join(" ")}\n`);
        files.set("cgroup.subtree_control", "");
      }
      this.#groups.set(path, { files, pids: new Set() });
    }
  }

  /** Paths of all groups below the roots. */
  get groups(): string[] {
    return [...this.#groups.keys()].filter((path) => !(path in this.#roots));
  }

  file(path: string): string | undefined {
    return this.#groups.get(dirname(path))?.files.get(path.slice(dirname(path).length + 1));
  }

  setFile(path: string, value: string): void {
    this.#group(dirname(path)).files.set(path.slice(dirname(path).length + 1), value);
  }

  addProcess(path: string, ...pids: number[]): void {
    for (const pid of pids) this.#group(path).pids.add(pid);
  }

  async read(path: string): Promise<string | undefined> {
    const group = this.#groups.get(dirname(path));
    if (group !== undefined && path.endsWith("/cgroup.procs")) return [...group.pids].map((pid) => `${pid}\n`).join("");
    return this.file(path);
  }

  async write(path: string, value: string): Promise<void> {
    if (this.file(path) === undefined) throw errno("ENOENT");
    const group = dirname(path);
    const name = path.slice(group.length + 1);
    this.#assertMemoryOrder(group, name, Number(value));
    if (name === "cgroup.subtree_control") this.#enable(group, value);
    else if (name === "cgroup.kill") this.#killBranch(group);
    else this.setFile(path, value);
    if (name === "cgroup.freeze") this.setFile(`${group}/cgroup.events`, `populated 1\nfrozen ${value}\n`);
    if (name === "freezer.state" && value === "THAWED") this.#deliverPending();
  }

  async makeDirectory(path: string): Promise<void> {
    if (this.#groups.has(path)) throw errno("EEXIST");
    const parent = this.#groups.get(dirname(path));
    if (parent === undefined) throw errno("ENOENT");
    const files = new Map([["cgroup.procs", ""]]);
    this.#groups.set(path, { files, pids: new Set() });
    if (this.#version === 1) {
      const root = Object.keys(this.#roots).find((root) => path.startsWith(`${root}/`)) ?? "";
      for (const controller of this.#roots[root] ?? []) this.#addFiles(files, v1Files[controller]);
      return;
    }
    const core = {
      "cgroup.subtree_control": "",
      "cgroup.events": "populated 0\nfrozen 0\n",
      "cgroup.freeze": "0",
      "cgroup.kill": "",
    };
    this.#addFiles(files, core);
    files.set("cgroup.controllers", "");
    this.#handDown(dirname(path));
  }

  async removeDirectory(path: string): Promise<void> {
    const group = this.#groups.get(path);
    if (group === undefined) throw errno("ENOENT");
    if (group.pids.size > 0 || (await this.children(path)).length > 0) throw errno("EBUSY");
    const refused = this.#refusals.get(path) ?? 0;
    if (refused < this.removalsRefused) {
      this.#refusals.set(path, refused + 1);
      throw errno("EBUSY");
    }
    this.#groups.delete(path);
  }

  async children(path: string): Promise<string[]> {
    return [...this.#groups.keys()].filter((key) => dirname(key) === path).map((key) => key.slice(path.length + 1));
  }

  readonly #pending = new Set<number>();

  kill(pid: number): void {
    if (pid <= 0) throw new Error("SIGKILL to ourselves");
    this.onKill(pid);
    if (this.immortal.has(pid)) return;
    if (this.#version === 1 && this.isFrozen(pid)) this.#pending.add(pid);
    else for (const { pids } of this.#groups.values()) pids.delete(pid);
  }

  #group(path: string): Group {
    const group = this.#groups.get(path);
    if (group === undefined) throw new Error(`There is no group ${path}`);
    return group;
  }

  #addFiles(files: Map<string, string>, added: Record<string, string> = {}): void {
    for (const [name, value] of Object.entries(added)) {
      if (!this.#without.has(name) && !files.has(name)) files.set(name, value);
    }
  }

  #enable(path: string, value: string): void {
    const { files, pids } = this.#group(path);
    const offered = (files.get("cgroup.controllers") ?? "").trim().split(" ");
    const wanted = value.split(" ").map((word) => word.slice(1));
    if (pids.size > 0) throw errno("EBUSY");
    if (!wanted.every((name) => offered.includes(name))) throw errno("ENOENT");
    files.set("cgroup.subtree_control", wanted.join(" "));
    this.#handDown(path);
  }

  #handDown(parent: string): void {
    const enabled = this.file(`${parent}/cgroup.subtree_control`) ?? "";
    for (const [path, { files }] of this.#groups) {
      if (dirname(path) !== parent || path in this.#roots) continue;
      files.set("cgroup.controllers", `${enabled}\n`);
      for (const name of enabled.split(" ")) this.#addFiles(files, v2Files[name]);
    }
  }

  #killBranch(path: string): void {
    for (const [key, { pids }] of this.#groups) {
      if (key !== path && !key.startsWith(`${path}/`)) continue;
      for (const pid of pids) if (!this.immortal.has(pid)) pids.delete(pid);
    }
  }

  isFrozen(pid: number): boolean {
    return [...this.#groups].some(([path, { pids }]) => pids.has(pid) && this.#standsStill(path));
  }

  /** Says whether a group or one above it is frozen. */
  #standsStill(path: string): boolean {
    const group = this.#groups.get(path);
    if (group === undefined) return false;
    return group.files.get("freezer.state") === "FROZEN" || this.#standsStill(dirname(path));
  }

  #deliverPending(): void {
    for (const pid of this.#pending)
      if (!this.isFrozen(pid)) for (const { pids } of this.#groups.values()) pids.delete(pid);
  }

  #assertMemoryOrder(group: string, name: string, bytes: number): void {
    const limit = Number(this.file(`${group}/memory.limit_in_bytes`));
    const withSwap = Number(this.file(`${group}/memory.memsw.limit_in_bytes`));
    if (name === "memory.limit_in_bytes" && bytes > withSwap) throw errno("EINVAL");
    if (name === "memory.memsw.limit_in_bytes" && bytes < limit) throw errno("EINVAL");
    if (name === "memory.limit_in_bytes" && bytes < Number(this.file(`${group}/memory.usage_in_bytes`)))
      throw errno("EBUSY");
  }
}

function errno(code: string): Error {
  return Object.assign(new Error(code), { code });
}
