import { SandboxError, type KeyInfo, type KeyVerb, type SandboxId } from "@atoll/protocol";

/** Who asks: an API key, or a sandbox's own token, which is good for that sandbox alone. */
export type Principal = { kind: "key"; key: KeyInfo } | { kind: "sandbox"; sandboxId: SandboxId };

/** What a sandbox's own token may do, with that sandbox. */
const tokenVerbs: ReadonlySet<KeyVerb> = new Set(["read", "commands", "files", "ports"]);

/** For logs, the audit and ownership. */
export function nameOf(principal: Principal): string {
  return principal.kind === "key" ? principal.key.id : `sandbox:${principal.sandboxId}`;
}

export function isAdmin(principal: Principal): boolean {
  return principal.kind === "key" && principal.key.verbs.includes("admin");
}

/** Refuses what the principal's verbs do not cover. `sandboxId`: the sandbox that is asked about, if one is. */
export function assertMay(principal: Principal, verb: KeyVerb, asked: string, sandboxId?: string): void {
  if (principal.kind === "key") {
    const { verbs } = principal.key;
    if (verbs.includes("admin") || verbs.includes(verb)) return;
    throw new SandboxError("permission_denied", `Cannot ${asked}: this key has no verb "${verb}"`, {
      suggestion: `Its verbs are ${verbs.join(", ")}. An admin key can make one with more.`,
      details: { verb, verbs },
    });
  }
  // The same words whether or not the other sandbox exists.
  if (sandboxId !== principal.sandboxId || !tokenVerbs.has(verb)) {
    throw new SandboxError("permission_denied", `Cannot ${asked}: this token is for another use`, {
      suggestion: "A sandbox's own token runs commands, uses files and opens ports of that sandbox.",
    });
  }
}

/** Refuses a template that the key may not use. */
export function assertMayUseTemplate(principal: Principal, template: string, asked: string): void {
  if (principal.kind !== "key" || principal.key.templates === undefined) return;
  const { templates } = principal.key;
  if (templates.includes(template)) return;
  throw new SandboxError("permission_denied", `Cannot ${asked}: this key may not use template ${template}`, {
    suggestion: `It may use ${templates.join(", ") || "none"}.`,
    details: { template, templates },
  });
}

/** Whether a sandbox of this owner is there at all for the principal. */
export function canSee(principal: Principal, sandbox: { id: string; owner: string }): boolean {
  if (principal.kind === "sandbox") return sandbox.id === principal.sandboxId;
  const { key } = principal;
  return !key.ownOnly || key.verbs.includes("admin") || sandbox.owner === key.id;
}

/** Which things of other kinds are there for the principal: its own, or all. */
export function seenBy(principal: Principal | undefined): (thing: { owner: string }) => boolean {
  return ({ owner }) => principal !== undefined && canSee(principal, { id: "", owner });
}
