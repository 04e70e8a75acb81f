import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { messageOf } from "@atoll/host";
import { deadlineAfter, firstToAbort } from "@atoll/protocol";
import type { AlertSettings } from "./alert-settings.ts";
import { postAlert } from "./post-alert.ts";
import { signAlert } from "./sign-alert.ts";

const maxQueued = 1_000;
/** How long a receiver may take to accept an alert. */
const deadlineMs = 10_000;
const firstRetryMs = 1_000;
const longestRetryMs = 60_000;
/** Together with the delays, attempts go on for about a quarter of an hour. */
const mostAttempts = 20;

/** Answers that say that a later attempt may succeed; after any other refusal the alert is given up. */
const isTemporary = (status: number): boolean => status >= 500 || status === 408 || status === 425 || status === 429;

export interface Alert {
  kind: string;
  atMs: number;
  /** What happened, as JSON. */
  event: unknown;
}

export interface WebhookOptions extends Pick<AlertSettings, "url" | "secret"> {
  /** Says which server the alerts are from. */
  server: string;
  /** Called when an alert is given up, and when an attempt failed; the latter at most once per alert. */
  onProblem?: (problem: string) => void;
  limits?: Partial<{ queued: number; deadlineMs: number; retryMs: number; attempts: number }>;
}

export interface AlertCounts {
  delivered: number;
  /** These were given up: the receiver refused them, or could not be reached for too long. */
  failed: number;
  /** These were never sent, because too many waited. */
  dropped: number;
  queued: number;
}

/**
 * Sends alerts to a receiver, one after the other and each until it is accepted, refused or given up. It never delays
 * its caller: alerts wait in a bounded queue, of which the oldest is dropped when it is full. The next alert that
 * arrives says how many are missing before it.
 */
export class Webhook {
  readonly #options: WebhookOptions;
  readonly #limits: { queued: number; deadlineMs: number; retryMs: number; attempts: number };
  readonly #queue: Alert[] = [];
  readonly #closed = new AbortController();
  readonly #counts = { delivered: 0, failed: 0, dropped: 0 };
  /** Alerts that are missing since the last one that was delivered. */
  #missing = 0;
  #working: Promise<void> | undefined;

  constructor(options: WebhookOptions) {
    this.#options = options;
    this.#limits = {
      queued: maxQueued,
      deadlineMs,
      retryMs: firstRetryMs,
      attempts: mostAttempts,
      ...options.limits,
    };
  }

  get counts(): AlertCounts {
    return { ...this.#counts, queued: this.#queue.length };
  }

  /** Returns at once. */
  send(alert: Alert): void {
    if (this.#closed.signal.aborted) return;
    this.#queue.push(alert);
    // The first one is being sent: the next one is the oldest that waits.
    if (this.#queue.length > this.#limits.queued) {
      this.#queue.splice(this.#working === undefined ? 0 : 1, 1);
      this.#counts.dropped += 1;
      this.#missing += 1;
    }
    this.#working ??= this.#work().finally(() => {
      this.#working = undefined;
    });
  }

  /** Ends the attempt under way. What waits is dropped, and counted. */
  async close(): Promise<AlertCounts> {
    this.#closed.abort(new Error("the server stops"));
    await this.#working;
    this.#counts.dropped += this.#queue.splice(0).length;
    return this.counts;
  }

  async #work(): Promise<void> {
    for (let alert = this.#queue[0]; alert !== undefined; alert = this.#queue[0]) {
      const problem = await this.#deliver(alert);
      if (this.#closed.signal.aborted && problem !== undefined) return;
      this.#queue.shift();
      if (problem === undefined) {
        this.#counts.delivered += 1;
      } else {
        this.#counts.failed += 1;
        this.#missing += 1;
        this.#options.onProblem?.(`an alert was given up: ${problem}`);
      }
    }
  }

  /** Resolves to why the alert could not be delivered; undefined if it was. */
  async #deliver(alert: Alert): Promise<string | undefined> {
    const id = randomUUID();
    let pauseMs = this.#limits.retryMs;
    for (let attempt = 1; ; attempt += 1) {
      const outcome = await this.#attempt(id, alert);
      if (outcome.isOver) return outcome.problem;
      if (attempt === this.#limits.attempts || this.#closed.signal.aborted) return outcome.problem;
      if (attempt === 1) this.#options.onProblem?.(`an alert is retried: ${outcome.problem ?? ""}`);
      // The delays differ, so that the alerts of many servers do not arrive together.
      const delayMs = pauseMs * (0.5 + Math.random() / 2);
      await wait(delayMs, undefined, { signal: this.#closed.signal, ref: false }).catch(() => undefined);
      pauseMs = Math.min(pauseMs * 2, longestRetryMs);
    }
  }

  async #attempt(id: string, { kind, atMs, event }: Alert): Promise<{ isOver: boolean; problem?: string }> {
    const { url, secret, server } = this.#options;
    const missing = this.#missing;
    const missingBefore = missing === 0 ? {} : { missingBefore: missing };
    const body = JSON.stringify({ id, kind, atMs, server, ...missingBefore, event });
    const headers = { "atoll-alert": id, "atoll-signature": signAlert(secret, body, Date.now()) };
    using signal = firstToAbort(this.#closed.signal, deadlineAfter(this.#limits.deadlineMs));
    try {
      const status = await postAlert(url, body, headers, signal);
      if (status >= 200 && status < 300) {
        this.#missing -= missing;
        return { isOver: true };
      }
      return { isOver: !isTemporary(status), problem: `the receiver answered ${status}` };
    } catch (error) {
      return { isOver: false, problem: signal.aborted ? "the receiver did not answer in time" : messageOf(error) };
    }
  }
}
