import { isSandboxError, SandboxError } from "@atoll/protocol";
import type { CallOptions } from "../object-store.ts";
import { storeFailure } from "./store-failure.ts";

/** The caller's, or one of its own that is never aborted: one for all would collect the listeners of all. */
export const signalOf = (options: CallOptions | undefined): AbortSignal =>
  options?.signal ?? new AbortController().signal;

/** What is not there is no error to whoever asked for it. */
export async function absentAsUndefined<T>(ask: () => Promise<T>): Promise<T | undefined> {
  try {
    return await ask();
  } catch (error) {
    if (isSandboxError(error, "not_found")) return undefined;
    throw error;
  }
}

/** A stream of bytes that broke off: what the store itself says comes as an error of ours. */
export const isCut = (error: unknown): boolean => !isSandboxError(error);

export function cutAsUnavailable(error: unknown, place: string, doing: string, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  return isCut(error) ? storeFailure("unreachable", { place, doing, said: String(error), cause: error }) : error;
}

export function replacedMeanwhile(key: string, place: string): SandboxError {
  return new SandboxError("unavailable", `Cannot read on in ${key}: it was replaced or removed meanwhile`, {
    suggestion: "Read it again from the start.",
    details: { reason: "replaced", key, place },
  });
}

/** A whole object may be read when it is read once more from its start. */
export const isReplaced = (error: unknown): boolean =>
  isSandboxError(error, "unavailable") && error.details["reason"] === "replaced";

/** Waits no longer than its caller wants to; the work goes on for others. */
export function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const leave = () => reject(signal.reason as Error);
    if (signal.aborted) leave();
    signal.addEventListener("abort", leave, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", leave));
  });
}

/** An address may have a name and a password in it. */
export const endpointForMessages = (endpoint: string | undefined): string =>
  endpoint === undefined ? "" : ` at ${new URL(endpoint).origin}`;
