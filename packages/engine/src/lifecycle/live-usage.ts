import type { Cgroup } from "@atoll/host";
import { defaultSoftLimit, SandboxError, type SandboxId, type SandboxRecord, type SandboxUsage } from "@atoll/protocol";
import { readOrExplain, UsageMonitor, type SandboxGlance, type UsageMonitorOptions } from "../limits/usage-monitor.ts";
import type { SandboxLifeOptions } from "./life-options.ts";

/** With less than this the guest would hardly answer. */
const fewestCpus = 0.02;

/** What one sandbox uses, in one container after the other. */
export class LiveUsage {
  /** The share of each limit at which it counts as near. */
  softLimit = defaultSoftLimit;
  #monitor: UsageMonitor | undefined;
  #cgroup: Pick<Cgroup, "setLimits"> | undefined;
  #limits: Pick<SandboxRecord["limits"], "cpus" | "memoryBytes"> | undefined;

  watch(
    { id, limits }: Pick<SandboxRecord, "id" | "limits">,
    { layout, template }: Pick<SandboxLifeOptions, "layout" | "template">,
    options: Pick<UsageMonitorOptions, "channel" | "layerBytes" | "emit"> & {
      cgroup: UsageMonitorOptions["cgroup"] & Pick<Cgroup, "setLimits">;
      onOverrun: (message: string) => void;
    },
  ): void {
    this.#cgroup = options.cgroup;
    this.#limits = limits;
    this.#monitor = new UsageMonitor({
      ...options,
      softLimit: () => this.softLimit,
      sandboxId: id,
      limits,
      upperDirs: template.trees.map((_, index) => layout.layer(index).upper),
      onOverrun: (usedBytes) => {
        options.onOverrun(
          `its files take ${usedBytes} bytes, ${limits.diskBytes} are allowed, and it continued to write`,
        );
      },
    });
  }

  stop(): void {
    this.#monitor?.stop();
  }

  async read(id: SandboxId): Promise<SandboxUsage> {
    if (this.#monitor === undefined) throw new Error(`Sandbox ${id} is not watched`);
    return readOrExplain(this.#monitor, id);
  }

  /** Returns what can be read without a question to the guest; undefined while nothing runs. */
  async peek(): Promise<SandboxGlance | undefined> {
    if (this.#monitor === undefined || this.#monitor.isStopped) return undefined;
    return this.#monitor.peek();
  }

  /** Gives the container this share of the CPU time that it may use, until it is called again or the container ends. */
  async throttle(id: SandboxId, share: number): Promise<void> {
    const { cgroup, limits } = this.#runningIn(id);
    await cgroup.setLimits({ cpus: Math.max(fewestCpus, limits.cpus * share) });
  }

  /** Gives the container this much memory above its limit, until it is called again or the container ends. */
  async allowMoreMemory(id: SandboxId, bytes: number): Promise<void> {
    const { cgroup, limits } = this.#runningIn(id);
    await cgroup.setLimits({ memoryBytes: limits.memoryBytes + bytes });
  }

  #runningIn(id: SandboxId): { cgroup: Pick<Cgroup, "setLimits">; limits: { cpus: number; memoryBytes: number } } {
    if (this.#monitor?.isStopped === false && this.#cgroup !== undefined && this.#limits !== undefined) {
      return { cgroup: this.#cgroup, limits: this.#limits };
    }
    throw new SandboxError("invalid_state", `Cannot change the limits of sandbox ${id}: it does not run`);
  }

  /** Emits that memory has run out, if the kernel has killed a process for it since the last check. */
  async reportOutOfMemory(): Promise<void> {
    await this.#monitor?.lookForOom();
  }

  /** The returned function resolves to whether memory has run out since this call. */
  watchForOutOfMemory(): () => Promise<boolean> {
    const first = this.#monitor;
    const before = first?.oomKills ?? 0;
    return async () => {
      const monitor = this.#monitor;
      // In a container that the sandbox was moved to since then every kill counts.
      return monitor !== undefined && (await monitor.lookForOom()) > (monitor === first ? before : 0);
    };
  }
}
