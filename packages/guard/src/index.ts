export type { AuditEntry, AuditKind } from "./audit/audit-entry.ts";
export { AuditLog, type AuditOptions } from "./audit/audit-log.ts";
export { queryLog } from "./audit/query-log.ts";
export { redact } from "./audit/redact.ts";
export { verifyLog, type VerifyOptions } from "./audit/verify-log.ts";
export { deriveKey, secretBytes, type KeyPurpose } from "./keys/derive-key.ts";
export { RateLimiter } from "./rate-limiter.ts";
