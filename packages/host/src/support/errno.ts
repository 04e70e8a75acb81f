/** Whether a system call failed with one of these codes: `hasErrno(error, "ENOENT")`. */
export function hasErrno(error: unknown, ...codes: string[]): boolean {
  return error instanceof Error && "code" in error && codes.includes(String(error.code));
}

/** The disk, or what somebody may use of it, is full. */
export const noSpace = ["ENOSPC", "EDQUOT"] as const;
