import {
  AuditMessage,
  type AuditHead,
  type AuditLine,
  type AuditPage,
  type AuditQueryInput,
  type AuditVerification,
} from "@atoll/protocol";
import type { Http } from "./http/http.ts";
import { readLines } from "./http/ndjson.ts";

interface SignalOption {
  signal?: AbortSignal | undefined;
}

/** A stream without a sign of life for this long is taken for broken; the server sends one every 15 seconds. */
const silenceMs = 45_000;

/** Checking a large log takes minutes. */
const verifyMs = 30 * 60_000;

/** The audit log of the server: `atoll.audit`. For keys that have the verb `admin`. */
export class Audit {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /**
   * Returns the number and the hash of the last line. Keep them where the server's operator cannot change them, and the
   * log up to that line cannot be rewritten unnoticed.
   *
   * @example
   * const { seq, hash } = await atoll.audit.head();
   * console.log(seq > 0, hash.length); // true 64
   */
  async head(options: SignalOption = {}): Promise<AuditHead> {
    return this.#http.call("getAuditHead", options);
  }

  /**
   * Checks every line of the log, and that it still contains an earlier head.
   *
   * @example
   * const head = await atoll.audit.head();
   * const { isIntact, problems } = await atoll.audit.verify({ head });
   * console.log(isIntact, problems.length); // true 0
   */
  async verify(options: SignalOption & { head?: AuditHead | undefined } = {}): Promise<AuditVerification> {
    const { head, signal } = options;
    const query = head === undefined ? {} : { head: `${head.seq}:${head.hash}` };
    return this.#http.call("verifyAudit", { query, signal, timeoutMs: verifyMs });
  }

  /**
   * Returns the newest lines that match, oldest first. `before` is the `seq` of the first line of a page, for the page
   * before it.
   *
   * @example
   * const { lines } = await atoll.audit.query({ what: "createKey", limit: 10 });
   * console.log(lines.every(({ what }) => what === "createKey")); // true
   */
  async query(query: AuditQueryInput = {}, options: SignalOption = {}): Promise<AuditPage> {
    return this.#http.call("queryAudit", { query, ...options });
  }

  /**
   * Yields the last lines and then each new one, until the loop is left, the signal aborts or the server stops.
   * `skipped` says that this client read too slowly: so many lines are in the log and not here.
   *
   * @example
   * for await (const message of atoll.audit.tail({ lines: 1 })) {
   *   if (message.type === "line") break;
   * }
   */
  async *tail(
    options: SignalOption & { lines?: number | undefined; follow?: boolean | undefined } = {},
  ): AsyncGenerator<{ type: "line"; line: AuditLine } | { type: "skipped"; lines: number }, void, undefined> {
    const { lines = 10, follow = true, signal } = options;
    const query = { lines, follow: follow ? ("true" as const) : ("false" as const) };
    const body = await this.#http.body("tailAudit", { query, signal });
    for await (const value of readLines(body, silenceMs)) {
      const message = AuditMessage.parse(value);
      if (message.type === "shutdown" || message.type === "refused") return;
      if (message.type !== "heartbeat") yield message;
    }
  }
}
