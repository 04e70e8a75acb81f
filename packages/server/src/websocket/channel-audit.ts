import type { AuditEntry } from "@atoll/guard";
import type { CommandId, SandboxId } from "@atoll/protocol";
import { nameOf, type Principal } from "../auth/principal.ts";
import { errorReply } from "../http/error-reply.ts";

/**
 * The number of audit lines for actions of one kind. Further actions share a line: a channel counts as one request, and
 * must not push the actions of others out of the log.
 */
const mostLines = 100;

export interface ChannelAuditOptions {
  emit: (entry: AuditEntry) => void;
  principal: Principal;
  /** The same parameters as for these actions by HTTP. */
  params: { id: SandboxId; commandId?: CommandId };
  /** Aborts when the channel is closed. */
  signal: AbortSignal;
}

interface Gathered {
  sinceMs: number;
  count: number;
  bytesIn: number;
  result: string;
}

/** Records in the audit log what a client does over one channel, under the names of the routes that do the same. */
export class ChannelAudit {
  readonly #options: ChannelAuditOptions;
  readonly #lines = new Map<string, number>();
  readonly #gathered = new Map<string, Gathered>();

  constructor(options: ChannelAuditOptions) {
    this.#options = options;
  }

  /** Records one action when it is done. */
  async each<T>(what: string, details: Record<string, unknown>, action: () => Promise<T>): Promise<T> {
    const lines = (this.#lines.get(what) ?? 0) + 1;
    if (lines > mostLines) return this.gather(what, 0, action);
    this.#lines.set(what, lines);
    const sinceMs = performance.now();
    let result = "ok";
    try {
      return await action();
    } catch (error) {
      result = this.#resultOf(error);
      throw error;
    } finally {
      this.#emit(what, { result, sinceMs, details });
    }
  }

  /**
   * Records the first action of this kind when it is done, and all of them in one line at the end, with their bytes and
   * the first failure.
   */
  async gather<T>(what: string, bytes: number, action: () => Promise<T>): Promise<T> {
    const gathered = this.#gathered.get(what) ?? { sinceMs: performance.now(), count: 0, bytesIn: 0, result: "ok" };
    this.#gathered.set(what, gathered);
    gathered.count += 1;
    gathered.bytesIn += bytes;
    const isFirst = gathered.count === 1 && !this.#lines.has(what);
    try {
      const done = await action();
      if (isFirst) this.#emit(what, { result: "started", sinceMs: gathered.sinceMs, bytesIn: bytes, details: {} });
      return done;
    } catch (error) {
      if (gathered.result === "ok") gathered.result = this.#resultOf(error);
      throw error;
    }
  }

  /** Writes the gathered lines after the channel was closed and its work is done. */
  end(): void {
    for (const [what, { sinceMs, count, bytesIn, result }] of this.#gathered) {
      this.#emit(what, { result, sinceMs, bytesIn, details: { messages: count } });
    }
    this.#gathered.clear();
  }

  #emit(
    what: string,
    facts: { result: string; sinceMs: number; bytesIn?: number; details: Record<string, unknown> },
  ): void {
    const { emit, principal, params } = this.#options;
    const { result, sinceMs, bytesIn, details } = facts;
    emit({
      who: nameOf(principal),
      what,
      sandboxId: params.id,
      result,
      ...(bytesIn === undefined ? {} : { bytesIn }),
      durationMs: Math.round((performance.now() - sinceMs) * 10) / 10,
      details: { ...params, ...details },
    });
  }

  #resultOf(error: unknown): string {
    return this.#options.signal.aborted ? "client left" : errorReply(error).error.code;
  }
}
