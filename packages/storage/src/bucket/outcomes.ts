import { isSandboxError, SandboxError } from "@atoll/protocol";
import type { CallOptions } from "../object-store.ts";
import { storeFailure } from "./store-failure.ts";

/**
 * Returns the caller's signal, or a new one that is never aborted. A shared one would collect the listeners of all
 * calls.
 */
export const signalOf = (options: CallOptions | undefined): AbortSignal =>
  options?.signal ?? new AbortController().signal;

/** Resolves with undefined if what `ask` asks for does not exist. */
export async function absentAsUndefined<T>(ask: () => Promise<T>): Promise<T | undefined> {
  try {
    return await ask();
  } catch (error) {
    if (isSandboxError(error, "not_found")) return undefined;
    throw error;
  }
}

/** Whether a stream of bytes broke off: what the store itself answers is a `SandboxError`. */
export const isCut = (error: unknown): boolean => !isSandboxError(error);

export function cutAsUnavailable(error: unknown, place: string, doing: string, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  return isCut(error) ? storeFailure("unreachable", { place, doing, said: String(error), cause: error }) : error;
}

export function replacedDuringRead(key: string, place: string): SandboxError {
  return new SandboxError("unavailable", `Cannot read on in ${key}: it was replaced or removed while it was read`, {
    suggestion: "Read it again from the start.",
    details: { reason: "replaced", key, place },
  });
}

/** Whether the object was replaced while it was read. To get the whole object, read it once more from its start. */
export const isReplaced = (error: unknown): boolean =>
  isSandboxError(error, "unavailable") && error.details["reason"] === "replaced";

/** Rejects when `signal` aborts; the work itself goes on for its other callers. */
export function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const leave = () => reject(signal.reason as Error);
    if (signal.aborted) leave();
    signal.addEventListener("abort", leave, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", leave));
  });
}

/** Returns the address without the name and the password that may be in it. */
export const endpointForMessages = (endpoint: string | undefined): string =>
  endpoint === undefined ? "" : ` at ${new URL(endpoint).origin}`;
