export { AlertSettings, alertKinds } from "./alerts/alert-settings.ts";
export { Webhook, type AlertCounts } from "./alerts/webhook.ts";
export type { AuditEntry, AuditKind } from "./audit/audit-entry.ts";
export { AuditLog, type AuditOptions } from "./audit/audit-log.ts";
export { auditLines, queryLog } from "./audit/query-log.ts";
export { redact } from "./audit/redact.ts";
export { verifyLog, type VerifyOptions } from "./audit/verify-log.ts";
export { ThreatLedger, type ThreatReport } from "./threats/threat-ledger.ts";
export { deriveKey, secretBytes } from "./keys/derive-key.ts";
export { ServerSecret } from "./keys/server-secret.ts";
export { decideImport, importRules, type ImportRules } from "./capabilities/import-rules.ts";
export { assertAllowed } from "./controller/assert-allowed.ts";
export { boundedLimits, policyCeiling, profileCeiling, type Ceiling, type CeilingOwner } from "./controller/ceiling.ts";
export { decide, type Decision, type GuardRequest, type Refusal } from "./controller/decide.ts";
export { parseAddress } from "./egress/address.ts";
export { allOf, compilePolicy, ruleBeyond, type CompiledPolicy } from "./egress/compile-policy.ts";
export { parseHost } from "./egress/host.ts";
export { ProfileBook } from "./profiles/profile-book.ts";
export {
  ceilingsWith,
  driverFor,
  egressFor,
  limitsFor,
  memoryCounts,
  missingFor,
  type MachineDrivers,
} from "./profiles/resolve-profile.ts";
export { weakerIn } from "./profiles/weaker-in.ts";
export { RateLimiter } from "./rate-limiter.ts";
export { LeftoverWatch } from "./monitor/leftover-watch.ts";
export { Sampler, type SamplerOptions } from "./monitor/sampler.ts";
export type { Enforcement, SampledLimits, Subject, Usage, Violation } from "./monitor/subject.ts";
export type { UsageTotals } from "./monitor/usage-totals.ts";
export { Finding, worstOf, type Severity } from "./scan/finding.ts";
export { scanModule } from "./scan/scan-module.ts";
export { scan } from "./scan/scan.ts";
