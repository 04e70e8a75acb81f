import type { CommandId, SandboxId } from "@atoll/protocol";
import type { AuditEntry } from "../audit/audit-log.ts";
import { nameOf, type Principal } from "../auth/principal.ts";
import { errorReply } from "../http/error-reply.ts";

/**
 * Acts of one kind beyond this many have a line together: a channel counts as one request, and must not push out of the
 * log what others did.
 */
const mostLines = 100;

export interface ChannelAuditOptions {
  emit: (entry: AuditEntry) => void;
  principal: Principal;
  /** As the parameters of the same acts by HTTP. */
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

/** Tells in the audit log what a client does over one channel, under the names of the routes that do the same. */
export class ChannelAudit {
  readonly #options: ChannelAuditOptions;
  readonly #lines = new Map<string, number>();
  readonly #gathered = new Map<string, Gathered>();

  constructor(options: ChannelAuditOptions) {
    this.#options = options;
  }

  /** One line for this act, when it is done. */
  async each<T>(what: string, details: Record<string, unknown>, act: () => Promise<T>): Promise<T> {
    const lines = (this.#lines.get(what) ?? 0) + 1;
    if (lines > mostLines) return this.gather(what, 0, act);
    this.#lines.set(what, lines);
    const sinceMs = performance.now();
    let result = "ok";
    try {
      return await act();
    } catch (error) {
      result = this.#resultOf(error);
      throw error;
    } finally {
      this.#emit(what, { result, sinceMs, details });
    }
  }

  /**
   * One line for all acts of this kind, at the end: with the bytes that came with them, and the first that went wrong.
   */
  async gather<T>(what: string, bytes: number, act: () => Promise<T>): Promise<T> {
    const gathered = this.#gathered.get(what) ?? { sinceMs: performance.now(), count: 0, bytesIn: 0, result: "ok" };
    this.#gathered.set(what, gathered);
    gathered.count += 1;
    gathered.bytesIn += bytes;
    try {
      return await act();
    } catch (error) {
      if (gathered.result === "ok") gathered.result = this.#resultOf(error);
      throw error;
    }
  }

  /** The channel is closed, and what came over it is done with. */
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
