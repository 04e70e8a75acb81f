import { createHash } from "node:crypto";
import { SandboxError } from "@atoll/protocol";
import { z } from "zod";

/**
 * As it is stored beside what the call made. Both are hashes: a key may be a secret of the caller, a request may hold
 * some.
 */
export const IdempotencyMark = z.strictObject({ key: z.string(), request: z.string() });
export type IdempotencyMark = z.infer<typeof IdempotencyMark>;

/** `scope` keeps the keys of one client apart from those of another. */
export function idempotencyMark(scope: string, key: string, request: unknown): IdempotencyMark {
  return {
    key: createHash("sha256")
      .update(JSON.stringify([scope, key]))
      .digest("hex"),
    request: createHash("sha256").update(canonicalJson(request)).digest("hex"),
  };
}

/**
 * Calls that happen once however often they are asked for. One that rejects has not happened, and may be tried again.
 */
export class IdempotentCalls<T> {
  #calls = new Map<string, { request: string; result: Promise<T> }>();

  /** Without a mark the work is simply done. */
  run(mark: IdempotencyMark | undefined, work: () => Promise<T>): Promise<T> {
    if (mark === undefined) return work();
    const earlier = this.#calls.get(mark.key);
    if (earlier !== undefined) {
      if (earlier.request === mark.request) return earlier.result;
      throw usedOtherwise();
    }
    const result = work();
    this.#calls.set(mark.key, { request: mark.request, result });
    result.catch(() => this.#calls.delete(mark.key));
    return result;
  }

  /** What was made with this key, or is being made. */
  find({ key }: Pick<IdempotencyMark, "key">): Promise<T> | undefined {
    return this.#calls.get(key)?.result;
  }

  /** For what was done before this server started. */
  restore(mark: IdempotencyMark, value: T): void {
    this.#calls.set(mark.key, { request: mark.request, result: Promise.resolve(value) });
  }

  /** What the call made is gone. */
  forget(mark: Pick<IdempotencyMark, "key">): void {
    this.#calls.delete(mark.key);
  }
}

export function usedOtherwise(): SandboxError {
  return new SandboxError("invalid_argument", "Cannot use this Idempotency-Key: it was used with another request", {
    suggestion: "Use a new key for a new request, and the same body for a retry.",
  });
}

/** The same text for the same value, whatever the order of its keys. */
function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
}
