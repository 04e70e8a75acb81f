import type { EgressHandler } from "@atoll/engine";
import type { EgressPolicy, SandboxId } from "@atoll/protocol";
import { compilePolicy, type CompiledPolicy } from "./compile-policy.ts";
import { createEgressHandler, type EgressDecision, type EgressGate } from "./create-egress-handler.ts";

export interface EgressGatesOptions {
  /** The policy in force; a sandbox that nobody has yet may reach nothing. */
  policyOf(id: SandboxId): EgressPolicy | undefined;
  onDecision(id: SandboxId, decision: EgressDecision): void;
}

const nothing = compilePolicy({ allow: [], deny: [] });

/** The ways out of all sandboxes. */
export class EgressGates {
  #options: EgressGatesOptions;
  #gates = new Map<SandboxId, EgressGate>();
  /** A changed policy is another object, so that what was understood once stays right. */
  #compiled = new WeakMap<EgressPolicy, CompiledPolicy>();

  constructor(options: EgressGatesOptions) {
    this.#options = options;
  }

  handlerFor(id: SandboxId): EgressHandler {
    const known = this.#gates.get(id);
    if (known !== undefined) return known.onEgress;
    const gate = createEgressHandler({
      policy: () => this.#policyOf(id),
      onDecision: (decision) => this.#options.onDecision(id, decision),
    });
    this.#gates.set(id, gate);
    return gate.onEgress;
  }

  /** After a change: connections that are not allowed any more are closed. */
  closeForbidden(id: SandboxId): void {
    this.#gates.get(id)?.closeNow();
  }

  forget(id: SandboxId): void {
    this.#gates.delete(id);
  }

  #policyOf(id: SandboxId): CompiledPolicy {
    const policy = this.#options.policyOf(id);
    if (policy === undefined) return nothing;
    const compiled = this.#compiled.get(policy) ?? compilePolicy(policy);
    this.#compiled.set(policy, compiled);
    return compiled;
  }
}
