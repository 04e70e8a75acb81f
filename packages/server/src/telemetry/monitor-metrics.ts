import type { AlertCounts, UsageTotals } from "@atoll/guard";
import { Counter, Gauge, type Metric } from "prom-client";

export interface MonitorSources {
  totals: () => UsageTotals;
  leftovers: () => number;
  alerts: () => AlertCounts;
}

/** One value of a metric: its labels and its number. */
type Reading = [labels: Record<string, string>, value: number];

/** The metrics about what all sandboxes use together, their limits, what they left behind, and alerts. */
export function monitorMetrics({ totals, leftovers, alerts }: MonitorSources): Metric[] {
  return [
    gauge("atoll_usage_memory_bytes", "Memory of all running sandboxes", () => totals().now.memoryBytes),
    gauge("atoll_usage_processes", "Processes in all running sandboxes", () => totals().now.processes),
    gauge("atoll_usage_disk_bytes", "Size of the files of all running sandboxes", () => totals().now.diskBytes),
    counter("atoll_usage_cpu_seconds_total", "CPU time of all sandboxes", [], () => [[{}, totals().sums.cpuMs / 1000]]),
    counter("atoll_network_bytes_total", "Bytes that sandboxes sent and received", ["direction"], () => [
      [{ direction: "sent" }, totals().sums.sentBytes],
      [{ direction: "received" }, totals().sums.receivedBytes],
    ]),
    counter("atoll_limit_violations_total", "Limits that came near (soft) or were hit (hard)", ["limit", "level"], () =>
      [...totals().violations.values()].map(({ count, ...labels }) => [labels, count]),
    ),
    counter("atoll_limit_actions_total", "What was done at limits", ["action", "result"], () =>
      [...totals().enforcements.values()].map(({ count, ...labels }) => [labels, count]),
    ),
    counter("atoll_monitor_seconds_total", "Time that requests waited for samples", [], () => [
      [{}, totals().samplerMs / 1000],
    ]),
    gauge("atoll_leftovers", "What ended sandboxes left on the host", leftovers),
    counter("atoll_alerts_total", "Alerts by what became of them", ["result"], () => {
      const { queued: _, ...counts } = alerts();
      return Object.entries(counts).map(([result, count]) => [{ result }, count]);
    }),
    gauge("atoll_alerts_queued", "Alerts that wait to be sent", () => alerts().queued),
  ];
}

function gauge(name: string, help: string, read: () => number): Gauge {
  return new Gauge({
    name,
    help,
    registers: [],
    collect() {
      this.set(read());
    },
  });
}

function counter(name: string, help: string, labelNames: string[], read: () => Reading[]): Counter {
  return new Counter({
    name,
    help,
    labelNames,
    registers: [],
    collect() {
      this.reset();
      for (const [labels, value] of read()) this.inc(labels, value);
    },
  });
}
