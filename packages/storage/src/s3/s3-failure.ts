import { isSandboxError } from "@atoll/protocol";
import { type FailureReason, reasonByStatus, storeFailure } from "../bucket/store-failure.ts";

/** The meaning of the error names of the REST API; for other names the HTTP status decides. */
const reasons: Readonly<Record<string, FailureReason>> = {
  PreconditionFailed: "condition",
  ConditionalRequestConflict: "condition",
  NoSuchKey: "object_missing",
  NotFound: "object_missing",
  NoSuchUpload: "object_missing",
  NoSuchBucket: "bucket_missing",
  AccessDenied: "credentials",
  AccountProblem: "credentials",
  CredentialsProviderError: "credentials",
  ExpiredToken: "credentials",
  InvalidAccessKeyId: "credentials",
  InvalidToken: "credentials",
  SignatureDoesNotMatch: "credentials",
  RequestTimeTooSkewed: "clock_skew",
  RequestExpired: "clock_skew",
  SlowDown: "throttled",
  Throttling: "throttled",
  TooManyRequests: "throttled",
  RequestLimitExceeded: "throttled",
  QuotaExceeded: "full",
  InsufficientStorage: "full",
};

/** Turns what the client threw into a `SandboxError`; after an abort, into the reason of the signal. */
export function toS3Failure(error: unknown, place: string, doing: string, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  if (isSandboxError(error) || !(error instanceof Error)) return error;
  const { $metadata } = error as { $metadata?: { httpStatusCode?: number } };
  // The response refers to the whole request, and with it to the signature.
  Reflect.deleteProperty(error, "$response");
  const reason = reasons[error.name] ?? reasonByStatus($metadata?.httpStatusCode);
  const { code } = error as { code?: string };
  return storeFailure(reason, { place, doing, said: code ?? error.name, cause: error });
}
