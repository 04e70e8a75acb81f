import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { LiveEvent } from "../events/live-event.ts";
import { appStates, type AppInfo } from "../manager/app-options.ts";

const buckets = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30];

/**
 * Counts what happens to apps, for Prometheus. There is no label with the id of an app, since ids are as many as their
 * users like.
 */
export class LiveMetrics {
  readonly #registry = new Registry();
  readonly #steps: Histogram<"step" | "result">;
  readonly #reloads: Counter<"result">;
  readonly #crashes: Counter;
  readonly #recoveries: Counter<"kind" | "recovery">;
  readonly #rollbacks: Counter;
  readonly #logs: Counter<"level">;
  readonly #changes: Counter;

  /** `apps` returns the apps that there are, at each reading. */
  constructor(apps: () => readonly AppInfo[]) {
    const registers = [this.#registry];
    this.#registry.registerMetric(appsByState(apps));
    this.#steps = new Histogram({
      name: "atoll_live_step_seconds",
      help: "Steps of reloads: compile, scan, types, prepare, suspend, commit, and reload for all of them",
      labelNames: ["step", "result"],
      buckets,
      registers,
    });
    this.#reloads = new Counter({
      name: "atoll_live_reloads_total",
      help: "Reloads by result: ok, or the phase in which they failed",
      labelNames: ["result"],
      registers,
    });
    this.#crashes = new Counter({ name: "atoll_live_crashes_total", help: "Services that crashed", registers });
    this.#recoveries = new Counter({
      name: "atoll_live_recoveries_total",
      help: "What was done about errors, by the kind of the error",
      labelNames: ["kind", "recovery"],
      registers,
    });
    this.#rollbacks = new Counter({ name: "atoll_live_rollbacks_total", help: "Returns to earlier code", registers });
    this.#logs = new Counter({
      name: "atoll_live_log_lines_total",
      help: "What apps have logged, by level",
      labelNames: ["level"],
      registers,
    });
    this.#changes = new Counter({
      name: "atoll_live_watch_changes_total",
      help: "Changes of files that were noticed, where a burst counts once",
      registers,
    });
  }

  record(event: LiveEvent): void {
    switch (event.type) {
      case "compile.end":
        return this.#step("compile", event.durationMs, event.ok);
      case "scan.end":
        return this.#step("scan", event.durationMs, event.ok);
      case "types.end":
        return this.#step("types", event.durationMs, event.ok);
      case "reload.prepare":
        return this.#step("prepare", event.durationMs);
      case "reload.suspend":
        return this.#step("suspend", event.durationMs);
      case "reload.commit":
        return this.#step("commit", event.durationMs);
      case "reload.end":
        this.#reloads.inc({ result: "ok" });
        return this.#step("reload", event.durationMs);
      case "reload.failed":
        return this.#reloads.inc({ result: event.phase });
      case "rollback":
        return this.#rollbacks.inc();
      case "service.crash":
        return this.#crashes.inc();
      case "recovery":
        return this.#recoveries.inc({ kind: event.kind, recovery: event.recovery });
      case "log":
        return this.#logs.inc({ level: event.level });
      case "watch.change":
        return this.#changes.inc();
      case "app.state":
      case "app.destroy":
      case "compile.start":
      case "reload.start":
      case "reload.settle":
      case "service.start":
      case "service.stop":
      case "process.end":
      case "security.denied":
      case "limit.near":
      case "limit.hit":
      case "limit.enforced":
        return undefined;
    }
  }

  /** The metrics in the text format of Prometheus. */
  async text(): Promise<{ contentType: string; text: string }> {
    return { contentType: this.#registry.contentType, text: await this.#registry.metrics() };
  }

  #step(step: string, durationMs: number, ok = true): void {
    this.#steps.observe({ step, result: ok ? "ok" : "failed" }, durationMs / 1000);
  }
}

function appsByState(apps: () => readonly AppInfo[]): Gauge {
  return new Gauge({
    name: "atoll_live_apps",
    help: "Apps by state",
    labelNames: ["state"],
    registers: [],
    collect() {
      for (const state of appStates) this.set({ state }, apps().filter((app) => app.state === state).length);
    },
  });
}
