import { constants } from "node:os";
import { SandboxError, type ErrorCode } from "@atoll/protocol";

const names = new Map<number, string>(Object.entries(constants.errno).map(([name, number]) => [number, name]));
// Node lists aliases; this is the common name.
names.set(constants.errno.EAGAIN, "EAGAIN");

const texts: Record<string, string> = {
  EACCES: "permission denied",
  EAGAIN: "no more processes are allowed",
  EEXIST: "it exists already",
  EFBIG: "the file would grow beyond the limit",
  EINVAL: "not a regular file, or not a valid argument",
  EISDIR: "it is a directory",
  ELOOP: "too many symbolic links",
  ENAMETOOLONG: "the name is too long",
  ENOENT: "no such file or directory",
  ENOEXEC: "it is not a program",
  ENOMEM: "out of memory",
  ENOSPC: "no space left",
  ENOTDIR: "not a directory",
  ENOTEMPTY: "the directory is not empty",
  EPERM: "operation not permitted",
  EROFS: "read-only file system",
  ETXTBSY: "the program is being written",
  ECONNREFUSED: "no process listens on the port",
};

const codes: Record<string, ErrorCode> = {
  EACCES: "permission_denied",
  EPERM: "permission_denied",
  EROFS: "permission_denied",
  EEXIST: "already_exists",
  ENOENT: "not_found",
  ENOTDIR: "not_found",
  EFBIG: "no_space",
  ENOSPC: "no_space",
  EDQUOT: "no_space",
};

function errnoName(errno: number): string {
  return names.get(errno) ?? `errno ${errno}`;
}

function errnoText(errno: number): string {
  const name = errnoName(errno);
  return texts[name] ?? name;
}

/** Returns the error for a request that the guest could not fulfil. `asked` completes "Cannot …". */
export function refusal(errno: number, asked: string): SandboxError {
  return new SandboxError("spawn_failed", `Cannot ${asked}: ${errnoText(errno)}`, {
    details: { errno: errnoName(errno), what: asked },
  });
}

/** Returns the error for a file operation that the sandbox's kernel refused. `asked` completes "Cannot …". */
export function fileError(errno: number, asked: string, details: Record<string, unknown>): SandboxError {
  const name = errnoName(errno);
  return new SandboxError(codes[name] ?? "file_error", `Cannot ${asked}: ${errnoText(errno)}`, {
    details: { ...details, errno: name },
  });
}
