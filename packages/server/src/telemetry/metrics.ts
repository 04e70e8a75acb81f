import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from "prom-client";
import { monitorMetrics, type MonitorSources } from "./monitor-metrics.ts";

export interface MetricsSources {
  /** Returns the number of sandboxes in each state. */
  sandboxes: () => ReadonlyMap<string, number>;
  runningCommands: () => number;
  /**
   * Returns how many times persistent sandboxes were handed over, taken over, lost or dropped, by the name of the
   * event.
   */
  persistenceEvents: () => ReadonlyMap<string, number>;
  /** Returns the number of sandboxes that are ready in the pool. */
  pooled: () => number;
  unresponsive: () => number;
  /** Returns the cursor of the last event, which grows by one with each. */
  lastEvent: () => number;
  monitor: MonitorSources;
}

/** The content of `/metrics`. Each server has its own metrics, also when two run in one process. */
export class Metrics {
  #registry = new Registry();
  #requests: Histogram<"method" | "route" | "status">;
  #websockets: Gauge;
  #refused: Counter;

  constructor(sources: MetricsSources) {
    const registers = [this.#registry];
    // These are memory, garbage collection and event loop delay of this process.
    collectDefaultMetrics({ register: this.#registry });
    this.#requests = new Histogram({
      name: "atoll_http_request_seconds",
      help: "Requests by route and status",
      labelNames: ["method", "route", "status"],
      buckets: [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30],
      registers,
    });
    this.#websockets = new Gauge({ name: "atoll_websocket_connections", help: "Open WebSockets", registers });
    this.#refused = new Counter({ name: "atoll_refused_total", help: "Requests with wrong credentials", registers });
    this.#registry.registerMetric(persistenceEventsByType(sources));
    this.#registry.registerMetric(sandboxesByState(sources));
    this.#registry.registerMetric(reading("atoll_commands_running", "Commands that run", sources.runningCommands));
    this.#registry.registerMetric(
      reading("atoll_sandboxes_unresponsive", "Running sandboxes whose guest does not answer", sources.unresponsive),
    );
    this.#registry.registerMetric(reading("atoll_sandboxes_pooled", "Sandboxes ready in the pool", sources.pooled));
    for (const metric of monitorMetrics(sources.monitor)) this.#registry.registerMetric(metric);
    this.#registry.registerMetric(reading("atoll_last_event", "Cursor of the last event", sources.lastEvent));
  }

  request(facts: { method: string; route: string; status: number; seconds: number }): void {
    this.#requests.observe({ method: facts.method, route: facts.route, status: String(facts.status) }, facts.seconds);
  }

  websocket(change: 1 | -1): void {
    this.#websockets.inc(change);
  }

  refused(): void {
    this.#refused.inc();
  }

  async text(): Promise<{ contentType: string; text: string }> {
    return { contentType: this.#registry.contentType, text: await this.#registry.metrics() };
  }
}

function sandboxesByState(sources: MetricsSources): Gauge {
  return new Gauge({
    name: "atoll_sandboxes",
    help: "Sandboxes by state",
    labelNames: ["state"],
    registers: [],
    collect() {
      this.reset();
      for (const [state, count] of sources.sandboxes()) this.set({ state }, count);
    },
  });
}

function persistenceEventsByType(sources: MetricsSources): Counter {
  return new Counter({
    name: "atoll_persistent_sandboxes_total",
    help: "What happened to persistent sandboxes here: hand-overs, take-overs, lost leases, dropped copies",
    labelNames: ["event"],
    registers: [],
    collect() {
      this.reset();
      for (const [event, count] of sources.persistenceEvents()) this.inc({ event }, count);
    },
  });
}

/** Returns a gauge that reads its value at each collection. */
function reading(name: string, help: string, read: () => number): Gauge {
  return new Gauge({
    name,
    help,
    registers: [],
    collect() {
      this.set(read());
    },
  });
}
