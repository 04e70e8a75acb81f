import { SandboxError } from "@atoll/protocol";

const noSpace = new Set(["ENOSPC", "EDQUOT"]);

/**
 * Converts the error of a full disk to one that a caller can act on, and returns any other error unchanged. `asked`
 * completes "Cannot …".
 */
export function storageError(error: unknown, asked: string): unknown {
  if (!(error instanceof Error && "code" in error && noSpace.has(String(error.code)))) return error;
  return new SandboxError("no_space", `Cannot ${asked}: the server's disk is full`, { cause: error });
}
