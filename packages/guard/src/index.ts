export { AuditLog, type AuditEntry, type AuditOptions } from "./audit/audit-log.ts";
export { redact } from "./audit/redact.ts";
export {
  builtinName,
  deniedFunctions,
  splitModules,
  whyDenied,
  type ModulePolicy,
} from "./capabilities/builtin-modules.ts";
export { RateLimiter } from "./rate-limiter.ts";
export { Finding, isAtLeast, severities, type Severity } from "./scan/finding.ts";
export { scanModule, unscannable } from "./scan/scan-module.ts";
export { scan } from "./scan/scan.ts";
