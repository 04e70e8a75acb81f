import type { EndReason } from "@atoll/protocol";
import { UsageMonitor, type UsageMonitorOptions } from "../limits/usage-monitor.ts";
import type { SandboxLifeOptions } from "./life-options.ts";

interface LimitWatchOptions extends Pick<UsageMonitorOptions, "cgroup" | "channel" | "frozenBytes"> {
  onOverrun: (reason: EndReason) => void;
}

/** Looks at a running sandbox's limits until it is stopped. */
export function watchLimits(
  { keeper, layout, template, events }: Pick<SandboxLifeOptions, "keeper" | "layout" | "template" | "events">,
  { onOverrun, ...options }: LimitWatchOptions,
): UsageMonitor {
  const { id, limits } = keeper.record;
  return new UsageMonitor({
    ...options,
    sandboxId: id,
    limits,
    upperDirs: template.trees.map((_, index) => layout.layer(index).upper),
    tell: events.tell,
    onOverrun: (usedBytes) => {
      const message = `its files take ${usedBytes} bytes, ${limits.diskBytes} are allowed, and it went on writing`;
      onOverrun({ kind: "disk", message });
    },
  });
}
