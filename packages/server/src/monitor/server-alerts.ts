import { hostname } from "node:os";
import { alertKinds, Webhook, type AlertCounts, type AlertSettings } from "@atoll/guard";
import type { Logger } from "pino";
import type { NewEvent } from "../events/event-journal.ts";

/** Sends the events that the operator wants to know of to the webhook of the settings. */
export class ServerAlerts {
  readonly #kinds: ReadonlySet<string>;
  readonly #webhook: Webhook | undefined;
  readonly #log: Logger;

  /** Without settings it sends nothing. */
  constructor(settings: AlertSettings | undefined, log: Logger) {
    this.#log = log;
    this.#kinds = new Set<string>(
      settings === undefined ? [] : alertKinds.filter((kind) => settings.kinds.includes(kind)),
    );
    if (settings === undefined) return;
    const { url, secret } = settings;
    const onProblem = (problem: string): void => log.warn({ problem }, "alert not delivered");
    this.#webhook = new Webhook({ url, secret, server: hostname(), onProblem });
  }

  get counts(): AlertCounts {
    return this.#webhook?.counts ?? { delivered: 0, failed: 0, dropped: 0, queued: 0 };
  }

  take(event: NewEvent): void {
    if (!this.#kinds.has(event.type)) return;
    const { type, atMs = Date.now(), ...facts } = event;
    this.#webhook?.send({ kind: type, atMs, event: facts });
  }

  async close(): Promise<void> {
    const counts = await this.#webhook?.close();
    if (counts !== undefined && counts.dropped > 0) this.#log.warn({ ...counts }, "alerts were dropped");
  }
}
