import { isSandboxError } from "@atoll/protocol";
import { type FailureReason, reasonByStatus, storeFailure } from "../bucket/store-failure.ts";

/** The client throws errors of three libraries; this is what they have in common. */
interface GcsError extends Error {
  code?: number | string;
  status?: number;
  response?: { status?: number };
  errors?: { reason?: string }[];
}

/** The HTTP status of the answer, or undefined when there was no answer. */
export function statusOf(error: unknown): number | undefined {
  const { code, status, response } = error as GcsError;
  const candidates = [code, status, response?.status].map(Number);
  return candidates.find((candidate) => candidate >= 100 && candidate < 600);
}

function reasonOf(error: GcsError): FailureReason {
  const status = statusOf(error);
  const text = error.message;
  if (status === undefined || status === 400) {
    if (/invalid_grant|timeframe/i.test(text) && /timeframe|clock|iat/i.test(text)) return "clock_skew";
    if (/credentials|invalid_grant/i.test(text)) return "credentials";
  }
  if (status === 403 && error.errors?.some(({ reason }) => /rateLimit/i.test(reason ?? "")) === true)
    return "throttled";
  if (status === 404 && /bucket/i.test(text)) return "bucket_missing";
  return reasonByStatus(status);
}

/** Turns what the client threw into a `SandboxError`; after an abort, into the reason of the signal. */
export function toGcsFailure(error: unknown, place: string, doing: string, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  if (isSandboxError(error)) return error;
  // The client sometimes throws an answer's error as a plain object.
  if (!(error instanceof Error)) return toGcsFailure(Object.assign(new Error("unknown"), error), place, doing, signal);
  const said = statusOf(error) ?? (error as GcsError).code ?? error.message.slice(0, 200);
  // The error itself must not become the cause: it contains the whole request, and with it the token.
  const cause = new Error(error.message.slice(0, 1_000));
  return storeFailure(reasonOf(error), { place, doing, said: String(said), cause });
}
