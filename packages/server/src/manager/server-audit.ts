import { join } from "node:path";
import { AuditLog, type AuditEntry, type AuditKind } from "@atoll/guard";
import type { AuditLevel } from "@atoll/protocol";
import type { Logger } from "pino";
import type { SandboxManagerOptions } from "./manager-options.ts";

/** Writes to the audit log as much as the sandbox that an entry is about asks for. */
export class ServerAudit {
  readonly log: AuditLog;
  /** Called for each entry about an answer from a sandbox that broke the protocol. */
  onViolation: (entry: AuditEntry) => void = () => undefined;
  readonly #levelOf: (sandboxId: string | undefined) => AuditLevel;

  private constructor(log: AuditLog, levelOf: (sandboxId: string | undefined) => AuditLevel) {
    this.log = log;
    this.#levelOf = levelOf;
  }

  /** Opens the log of a data directory. What was wrong with it is logged, and recorded in it. */
  static open(
    key: Buffer,
    { dataDir, audit, auditLevel = "basic" }: SandboxManagerOptions,
    log: Logger,
    profiledLevelOf: (sandboxId: string | undefined) => AuditLevel | undefined,
  ): ServerAudit {
    const auditLog = new AuditLog(join(dataDir, "audit"), {
      ...audit,
      key,
      onRepair: (message) => log.error({ because: message }, "audit log repaired"),
      onError: (error, { what }) => log.error({ err: error, what }, "audit line not written"),
    });
    return new ServerAudit(auditLog, (sandboxId) => profiledLevelOf(sandboxId) ?? auditLevel);
  }

  record(entry: AuditEntry, kind: AuditKind = "change"): void {
    this.log.record(entry, this.#levelOf(entry.sandboxId), kind);
    if (entry.result === "guest_violation") this.onViolation(entry);
  }
}
