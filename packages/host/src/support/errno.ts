/** Says whether a system call failed with one of these codes: `hasErrno(error, "ENOENT")`. */
export function hasErrno(error: unknown, ...codes: string[]): boolean {
  return error instanceof Error && "code" in error && codes.includes(String(error.code));
}

/** These codes say that the disk, or a quota on it, is full. */
export const noSpace = ["ENOSPC", "EDQUOT"] as const;
