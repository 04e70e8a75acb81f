import { SandboxError, type KeyInfo, type KeyVerb, type SandboxId } from "@atoll/protocol";

/** The sender of a request: an API key, or a sandbox by its own token, which is valid for that sandbox alone. */
export type Principal = { kind: "key"; key: KeyInfo } | { kind: "sandbox"; sandboxId: SandboxId };

/** The verbs that a sandbox's own token has, for that sandbox only. */
const tokenVerbs: ReadonlySet<KeyVerb> = new Set(["read", "commands", "files", "ports"]);

/** Returns the name of a principal for logs, the audit log and ownership. */
export function nameOf(principal: Principal): string {
  return principal.kind === "key" ? principal.key.id : `sandbox:${principal.sandboxId}`;
}

export function isAdmin(principal: Principal): boolean {
  return principal.kind === "key" && principal.key.verbs.includes("admin");
}

/**
 * Throws if the principal's verbs do not cover the request. `sandboxId` is the sandbox that the request is about, if
 * there is one.
 */
export function assertMay(principal: Principal, verb: KeyVerb, asked: string, sandboxId?: string): void {
  if (principal.kind === "key") {
    const { verbs } = principal.key;
    if (verbs.includes("admin") || verbs.includes(verb)) return;
    throw new SandboxError("permission_denied", `Cannot ${asked}: this key has no verb "${verb}"`, {
      suggestion: `Its verbs are ${verbs.join(", ")}. An admin key can create one with more.`,
      details: { verb, verbs },
    });
  }
  // The message is the same whether or not the other sandbox exists.
  if (sandboxId !== principal.sandboxId || !tokenVerbs.has(verb)) {
    throw new SandboxError("permission_denied", `Cannot ${asked}: this token is for another use`, {
      suggestion: "A sandbox's own token runs commands, uses files and opens ports of that sandbox.",
    });
  }
}

/** Throws if the key may not use the template. */
export function assertMayUseTemplate(principal: Principal, template: string, asked: string): void {
  if (principal.kind !== "key" || principal.key.templates === undefined) return;
  const { templates } = principal.key;
  if (templates.includes(template)) return;
  throw new SandboxError("permission_denied", `Cannot ${asked}: this key may not use template ${template}`, {
    suggestion: `It may use ${templates.join(", ") || "none"}.`,
    details: { template, templates },
  });
}

/** Reports whether the principal may know about a sandbox of this owner. */
export function canSee(principal: Principal, sandbox: { id: string; owner: string }): boolean {
  if (principal.kind === "sandbox") return sandbox.id === principal.sandboxId;
  const { key } = principal;
  return !key.ownOnly || key.verbs.includes("admin") || sandbox.owner === key.id;
}

/** Returns a filter for snapshots and templates that the principal may know about: its own, or all. */
export function seenBy(principal: Principal | undefined): (thing: { owner: string }) => boolean {
  return ({ owner }) => principal !== undefined && canSee(principal, { id: "", owner });
}
