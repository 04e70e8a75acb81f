import type { AuditLevel } from "@atoll/protocol";

/** One action in the audit log: the principal, the action, the time and the result. */
export interface AuditEntry {
  /**
   * The id of an API key, `sandbox:<id>` for a sandbox's own token, `server` for what the server does by itself, or
   * `nobody` for requests without valid credentials.
   */
  who: string;
  /** The name of a route, or of an action of the server. */
  what: string;
  sandboxId?: string | undefined;
  /** `ok`, or the code of the error. */
  result: string;
  bytesIn?: number | undefined;
  bytesOut?: number | undefined;
  durationMs?: number | undefined;
  requestId?: string | undefined;
  details?: Record<string, unknown> | undefined;
}

/**
 * What an entry is about: a security decision or response, which is recorded at every level; a change; or something
 * that only reads.
 */
export type AuditKind = "security" | "change" | "read";

const recorded: Readonly<Record<AuditLevel, ReadonlySet<AuditKind>>> = {
  full: new Set(["security", "change", "read"]),
  basic: new Set(["security", "change"]),
  none: new Set(["security"]),
};

export function isRecorded(kind: AuditKind, level: AuditLevel): boolean {
  return recorded[level].has(kind);
}
