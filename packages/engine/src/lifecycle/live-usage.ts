import type { SandboxId, SandboxRecord, SandboxUsage } from "@atoll/protocol";
import { readOrExplain, UsageMonitor, type UsageMonitorOptions } from "../limits/usage-monitor.ts";
import type { SandboxLifeOptions } from "./life-options.ts";

/** What one sandbox uses, in one container after the other. */
export class LiveUsage {
  #monitor: UsageMonitor | undefined;

  watch(
    { id, limits }: Pick<SandboxRecord, "id" | "limits">,
    { layout, template }: Pick<SandboxLifeOptions, "layout" | "template">,
    options: Pick<UsageMonitorOptions, "cgroup" | "channel" | "layerBytes" | "emit"> & {
      onOverrun: (message: string) => void;
    },
  ): void {
    this.#monitor = new UsageMonitor({
      ...options,
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
