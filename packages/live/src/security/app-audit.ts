import type { AuditEntry, AuditKind } from "@atoll/guard";
import type { LiveEvent } from "../events/live-event.ts";

/** What the audit log has of an event of an app; `undefined` for events that are no action. */
export function auditEntryOf(event: LiveEvent): { entry: AuditEntry; kind: AuditKind } | undefined {
  const found = describe(event);
  if (found === undefined) return undefined;
  const { kind, what = event.type, result = "ok", details } = found;
  return { kind, entry: { who: `app:${event.app}`, what: `app.${what}`, result, details } };
}

interface Description {
  kind: AuditKind;
  what?: string;
  result?: string;
  details?: Record<string, unknown>;
}

function describe(event: LiveEvent): Description | undefined {
  // Other events are no actions.
  // oxlint-disable-next-line typescript/switch-exhaustiveness-check
  switch (event.type) {
    case "app.state": {
      const { state, from, reason } = event;
      const result = state === "error" ? "error" : "ok";
      return { kind: "change", what: "state", result, details: { state, from, reason } };
    }
    case "app.destroy":
      return { kind: "change", what: "destroy" };
    case "reload.end": {
      const { generation, modules } = event;
      return { kind: "change", details: { generation, modules } };
    }
    case "reload.failed": {
      const { phase, code, reason } = event;
      return { kind: "change", result: code, details: { phase, reason } };
    }
    case "rollback": {
      const { from, to, reason } = event;
      return { kind: "change", details: { from, to, reason } };
    }
    case "scan.end": {
      const findings = event.diagnostics.map(({ file, line, column, code, message }) => ({
        place: `${file}:${line}:${column}`,
        rule: code,
        message,
      }));
      const result = event.ok ? "ok" : "permission_denied";
      return { kind: "security", what: "code_load", result, details: { findings: findings.slice(0, 20) } };
    }
    case "security.denied":
      return { kind: "security", what: "access", result: "permission_denied", details: { tried: event.what } };
    case "limit.near":
    case "limit.hit": {
      const { limit, used, allowed } = event;
      return { kind: "security", result: "limit_reached", details: { limit, used, allowed } };
    }
    case "limit.enforced": {
      const { limit, action, result, because } = event;
      return { kind: "security", result, details: { limit, action, because } };
    }
    case "process.end":
      return { kind: "change", details: { reason: event.reason, willRestart: event.willRestart } };
    default:
      return undefined;
  }
}
