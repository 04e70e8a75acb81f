export { AuditLog, type AuditEntry, type AuditOptions } from "./audit/audit-log.ts";
export { redact } from "./audit/redact.ts";
export { RateLimiter } from "./rate-limiter.ts";
export { Sampler, type SamplerOptions } from "./monitor/sampler.ts";
export type { Enforcement, HardLimitAction, SampledLimits, Subject, Usage, Violation } from "./monitor/subject.ts";
export type { UsageTotals } from "./monitor/usage-totals.ts";
