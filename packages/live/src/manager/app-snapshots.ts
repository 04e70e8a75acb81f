import type { ServiceSnapshot } from "../wire/protocol.ts";
import type { AppConfig } from "./app-options.ts";
import type { RunningApp } from "./running-app.ts";

/** The runtime keeps a limit itself. The host waits this much longer before it gives up on an answer. */
const graceMs = 2_000;

/** A service that is busy for longer keeps the state that was saved before. */
const quickMs = 50;

/** The last known states of the services of an app, which a process that is started again goes on with. */
export class AppSnapshots {
  readonly #config: AppConfig;
  #timer: NodeJS.Timeout | undefined;
  current: ServiceSnapshot[] = [];

  constructor(config: AppConfig) {
    this.#config = config;
  }

  /** Reads the states of all services. */
  async take(running: RunningApp): Promise<void> {
    const { suspendTimeoutMs } = this.#config;
    const params = { timeoutMs: suspendTimeoutMs };
    const { snapshots } = await running.connection.request("snapshot", params, suspendTimeoutMs + graceMs);
    this.current = snapshots;
  }

  /** Reads the states of the services that are not busy, in case new code ends the process while it is loaded. */
  async takeQuickly(running: RunningApp): Promise<void> {
    const params = { timeoutMs: quickMs, skipsBusy: true };
    const { snapshots } = await running.connection.request("snapshot", params, quickMs + graceMs);
    this.merge(snapshots);
  }

  /** Takes over newer states of some services. */
  merge(captured: readonly ServiceSnapshot[]): void {
    const names = new Set(captured.map(({ name }) => name));
    this.current = [...this.current.filter(({ name }) => !names.has(name)), ...captured];
  }

  /** Calls back in the interval of the app until `stop`. */
  regularly(take: () => Promise<unknown>): void {
    this.stop();
    if (this.#config.snapshotMs === 0) return;
    this.#timer = setInterval(() => void take().catch(() => undefined), this.#config.snapshotMs);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
