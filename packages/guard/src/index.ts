export { AuditLog, type AuditEntry, type AuditOptions } from "./audit/audit-log.ts";
export { redact } from "./audit/redact.ts";
export { RateLimiter } from "./rate-limiter.ts";
