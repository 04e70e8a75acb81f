import type { AuditKind } from "@atoll/guard";
import type { EgressPolicy, SandboxId } from "@atoll/protocol";
import type { SandboxManager } from "../manager/sandbox-manager.ts";
import { undefinedIfNotFound } from "../support/undefined-if-not-found.ts";
import { EgressGates } from "./egress-gates.ts";

/**
 * Builds the network access of all sandboxes of a server, with events and audit lines for what is allowed and refused.
 */
export function serverEgress(manager: SandboxManager, ceiling: EgressPolicy): EgressGates {
  const auditEgress = (sandboxId: SandboxId, result: string, details: Record<string, unknown>, kind: AuditKind): void =>
    manager.audit.record({ who: `sandbox:${sandboxId}`, what: "egress", sandboxId, result, details }, kind);
  const egress = new EgressGates({
    policyOf: (id) => undefinedIfNotFound(() => manager.getEgressTerms(id)),
    ceiling,
    onAllowed: (sandboxId, { host, port, because }) => {
      manager.events.emit({ type: "egress.allowed", sandboxId, host, port });
      auditEgress(sandboxId, "allowed", { host, port, because }, "change");
    },
    onRefused: (sandboxId, { verdict, ...refusal }) => {
      manager.events.emit({ type: "egress.refused", sandboxId, ...refusal });
      auditEgress(sandboxId, verdict, refusal, "security");
    },
  });
  manager.isolation.onCut((id) => egress.closeForbidden(id));
  manager.engine.events.listen((event) => {
    if (event.type === "state" && (event.to === "killed" || event.to === "released")) egress.forget(event.sandboxId);
  });
  return egress;
}
