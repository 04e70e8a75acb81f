import { type ErrorCode, SandboxError } from "@atoll/protocol";

/** Why a bucket did not do what was asked: `details.reason` of the error, for programs. */
export type FailureReason =
  | "credentials"
  | "bucket_missing"
  | "clock_skew"
  | "throttled"
  | "condition"
  | "object_missing"
  | "full"
  | "unreachable"
  | "refused";

interface Failure {
  code: ErrorCode;
  says: string;
  suggestion?: string;
}

const failures: Readonly<Record<FailureReason, Failure>> = {
  credentials: {
    code: "storage_failed",
    says: "the credentials are refused",
    suggestion: "Check the key, that it may read, write, list and delete in this bucket, and that it has not expired.",
  },
  bucket_missing: {
    code: "storage_failed",
    says: "the bucket does not exist",
    suggestion: "Create the bucket, or correct its name, region and endpoint.",
  },
  clock_skew: {
    code: "storage_failed",
    says: "the clocks of this machine and of the store are too far apart",
    suggestion: "Set the clock of this machine, best by NTP.",
  },
  throttled: { code: "unavailable", says: "the store asks to slow down" },
  condition: { code: "conflict", says: "the condition does not hold" },
  object_missing: { code: "not_found", says: "there is no such object" },
  full: { code: "no_space", says: "the store is full" },
  unreachable: { code: "unavailable", says: "the store does not answer as it should" },
  refused: { code: "storage_failed", says: "the store refuses" },
};

export interface FailureContext {
  place: string;
  /** What was asked, as the words that follow "Cannot". */
  doing: string;
  /** The store's own name for the failure. */
  said?: string;
  cause?: unknown;
}

export function storeFailure(reason: FailureReason, context: FailureContext): SandboxError {
  const { code, says, suggestion } = failures[reason];
  const said = context.said === undefined ? "" : ` (${context.said})`;
  return new SandboxError(code, `Cannot ${context.doing} in ${context.place}: ${says}${said}`, {
    ...(suggestion === undefined ? {} : { suggestion }),
    details: { reason, place: context.place, ...(context.said === undefined ? {} : { said: context.said }) },
    cause: context.cause,
  });
}

/** Returns what an HTTP status means when the answer has no other reason. */
export function reasonByStatus(status: number | undefined): FailureReason {
  switch (status) {
    case undefined:
      // There was no answer: name resolution failed, the connection was refused or broken, or a time limit passed.
      return "unreachable";
    case 401:
    case 403:
      return "credentials";
    case 404:
      return "object_missing";
    case 412:
      return "condition";
    case 408:
    case 429:
      return "throttled";
    case 507:
      return "full";
    default:
      // A status below 400 reports success, but the client could not read the answer.
      return status >= 500 || status < 400 ? "unreachable" : "refused";
  }
}
