import { isSandboxError, SandboxError } from "@atoll/protocol";

export function hasErrno(error: unknown, ...codes: readonly string[]): boolean {
  return error instanceof Error && "code" in error && codes.includes(String(error.code));
}

const full = ["ENOSPC", "EDQUOT", "EFBIG"];
const passing = ["EMFILE", "ENFILE", "EAGAIN", "EBUSY", "EINTR", "ENOMEM"];

/**
 * Turns an error of the system into one of a store. Other errors are returned unchanged: an abort, a bug, a
 * `SandboxError`.
 */
export function fileFailure(what: string, error: unknown): unknown {
  if (isSandboxError(error) || !(error instanceof Error) || !("syscall" in error)) return error;
  const errno = "code" in error ? String(error.code) : "";
  const options = { cause: error, details: { errno } };
  if (full.includes(errno)) {
    return new SandboxError("no_space", `Cannot ${what}: the disk is full`, {
      ...options,
      suggestion: "Make room on the disk of the store, or give the store another one.",
    });
  }
  if (passing.includes(errno)) return new SandboxError("unavailable", `Cannot ${what}: ${error.message}`, options);
  return new SandboxError("storage_failed", `Cannot ${what}: ${error.message}`, options);
}
