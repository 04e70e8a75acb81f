import { createHash } from "node:crypto";
import { SandboxError } from "@atoll/protocol";
import { z } from "zod";

/**
 * Identifies a call; it is stored beside the result of the call. Both fields are hashes: a key may be a secret of the
 * caller, and a request may contain some.
 */
export const IdempotencyMark = z.strictObject({ key: z.string(), request: z.string() });
export type IdempotencyMark = z.infer<typeof IdempotencyMark>;

/** Computes a mark. `scope` separates the keys of one client from those of another. */
export function idempotencyMark(scope: string, key: string, request: unknown): IdempotencyMark {
  return {
    key: createHash("sha256")
      .update(JSON.stringify([scope, key]))
      .digest("hex"),
    request: createHash("sha256").update(canonicalJson(request)).digest("hex"),
  };
}

/** Runs each call once, however often it is requested. A call that rejects has not happened, and may be retried. */
export class IdempotentCalls<T> {
  #calls = new Map<string, { request: string; result: Promise<T> }>();

  /** Runs the work, or returns the result of the earlier call. Without a mark the work always runs. */
  run(mark: IdempotencyMark | undefined, work: () => Promise<T>): Promise<T> {
    if (mark === undefined) return work();
    const earlier = this.#calls.get(mark.key);
    if (earlier !== undefined) {
      if (earlier.request === mark.request) return earlier.result;
      throw keyReused();
    }
    const result = work();
    this.#calls.set(mark.key, { request: mark.request, result });
    result.catch(() => this.#calls.delete(mark.key));
    return result;
  }

  /** Returns the result of a call, also of one in progress. */
  find({ key }: Pick<IdempotencyMark, "key">): Promise<T> | undefined {
    return this.#calls.get(key)?.result;
  }

  /** Adds a call that was made before this server started. */
  restore(mark: IdempotencyMark, value: T): void {
    this.#calls.set(mark.key, { request: mark.request, result: Promise.resolve(value) });
  }

  /** Forgets a call, because its result is gone. */
  forget(mark: Pick<IdempotencyMark, "key">): void {
    this.#calls.delete(mark.key);
  }
}

export function keyReused(): SandboxError {
  return new SandboxError("invalid_argument", "Cannot use this Idempotency-Key: it was used with another request", {
    suggestion: "Use a new key for a new request, and the same body for a retry.",
  });
}

/** Returns the same text for the same value, whatever the order of its keys. */
function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
}
