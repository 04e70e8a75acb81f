import { isSandboxError, SandboxError } from "@atoll/protocol";
import { UnsatisfiableRange } from "./byte-range.ts";

export interface ErrorReply {
  status: number;
  error: SandboxError;
  /** Headers beside those that every reply has. */
  headers?: Record<string, string>;
  /** True for an error that the server does not expect and therefore logs. */
  isUnexpected: boolean;
}

/**
 * Turns an error into a reply; this is the only place that does. The text of a foreign error stays in the log, because
 * it may contain anything.
 */
export function errorReply(thrown: unknown): ErrorReply {
  if (isSandboxError(thrown)) {
    return { status: thrown.status, error: thrown, isUnexpected: thrown.code === "internal" };
  }
  const refused = httpRefusal(thrown);
  if (refused !== undefined) return { ...refused, isUnexpected: false };
  const error = new SandboxError("internal", "Cannot answer: something went wrong in the server", {
    suggestion: "The server's log has the reason under this request id.",
  });
  return { status: error.status, error, isUnexpected: true };
}

export function errorBody(error: SandboxError, requestId: string): { error: Record<string, unknown> } {
  return { error: { ...error.toJSON(), requestId } };
}

/**
 * Describes requests that HTTP itself refuses: wrong media type, not JSON, too large. Their status says more than that
 * of our code.
 */
function httpRefusal(thrown: unknown): Omit<ErrorReply, "isUnexpected"> | undefined {
  if (!(thrown instanceof Error) || !("statusCode" in thrown) || typeof thrown.statusCode !== "number")
    return undefined;
  const status = thrown.statusCode;
  if (status < 400 || status >= 500) return undefined;
  const what = refusals[status] ?? "the request is malformed";
  return {
    status,
    error: new SandboxError("invalid_argument", `Cannot take this request: ${what}`, { cause: thrown }),
    ...(thrown instanceof UnsatisfiableRange ? { headers: thrown.headers } : {}),
  };
}

const refusals: Readonly<Record<number, string>> = {
  400: "its body or address is malformed",
  408: "it took too long to arrive",
  413: "its body is too large",
  414: "its address is too long",
  415: "its Content-Type is not one that is taken here; JSON is application/json",
  416: "the file has no such range",
};
