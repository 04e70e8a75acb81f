import type { AuditEntry, AuditKind, AuditLog } from "@atoll/guard";
import type { AuditLevel } from "@atoll/protocol";

/** Writes to the audit log as much as the sandbox that an entry is about asks for. */
export class ServerAudit {
  readonly log: AuditLog;
  readonly #levelOf: (sandboxId: string | undefined) => AuditLevel;

  constructor(log: AuditLog, levelOf: (sandboxId: string | undefined) => AuditLevel) {
    this.log = log;
    this.#levelOf = levelOf;
  }

  record(entry: AuditEntry, kind: AuditKind = "change"): void {
    this.log.record(entry, this.#levelOf(entry.sandboxId), kind);
  }
}
