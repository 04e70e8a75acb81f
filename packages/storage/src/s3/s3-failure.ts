import { isSandboxError } from "@atoll/protocol";
import { type FailureReason, reasonByStatus, storeFailure } from "../bucket/store-failure.ts";

/** Names of errors in the REST API; what is not here goes by its HTTP status. */
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

/** What the client threw, as an error of ours; what was aborted throws the reason of its signal. */
export function toS3Failure(error: unknown, place: string, doing: string, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  if (isSandboxError(error) || !(error instanceof Error)) return error;
  const { $metadata } = error as { $metadata?: { httpStatusCode?: number } };
  // It has the whole request, and with it the signature.
  Reflect.deleteProperty(error, "$response");
  const reason = reasons[error.name] ?? reasonByStatus($metadata?.httpStatusCode);
  const { code } = error as { code?: string };
  return storeFailure(reason, { place, doing, said: code ?? error.name, cause: error });
}
