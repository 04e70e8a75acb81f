import type { EgressHandler } from "@atoll/engine";
import type { EgressPolicy, SandboxId } from "@atoll/protocol";
import { compilePolicy, type CompiledPolicy } from "./compile-policy.ts";
import { createEgressHandler, type EgressDecision, type EgressGate } from "./create-egress-handler.ts";
import { RefusalTally, type ToldRefusal } from "./refusal-tally.ts";

export interface EgressGatesOptions {
  /** The policy in force; a sandbox that nobody has yet may reach nothing. */
  policyOf(id: SandboxId): EgressPolicy | undefined;
  onAllowed(id: SandboxId, decision: EgressDecision): void;
  /** Of each, or of many as one. */
  onRefused(id: SandboxId, refusal: ToldRefusal): void;
}

interface Way {
  gate: EgressGate;
  refusals: RefusalTally;
}

const nothing = compilePolicy({ allow: [], deny: [] });

/** The ways out of all sandboxes. */
export class EgressGates {
  #options: EgressGatesOptions;
  #ways = new Map<SandboxId, Way>();
  /** A changed policy is another object, so that what was understood once stays right. */
  #compiled = new WeakMap<EgressPolicy, CompiledPolicy>();

  constructor(options: EgressGatesOptions) {
    this.#options = options;
  }

  handlerFor(id: SandboxId): EgressHandler {
    const known = this.#ways.get(id);
    if (known !== undefined) return known.gate.onEgress;
    const refusals = new RefusalTally((refusal) => this.#options.onRefused(id, refusal));
    const gate = createEgressHandler({
      policy: () => this.#policyOf(id),
      onDecision: (decision) => {
        if (decision.verdict === "allowed") this.#options.onAllowed(id, decision);
        else refusals.add(decision);
      },
    });
    this.#ways.set(id, { gate, refusals });
    return gate.onEgress;
  }

  /** After a change: connections that are not allowed any more are closed. */
  closeForbidden(id: SandboxId): void {
    this.#ways.get(id)?.gate.closeNow();
  }

  forget(id: SandboxId): void {
    this.#ways.get(id)?.refusals.flush();
    this.#ways.delete(id);
  }

  /** Nothing that was counted stays untold. */
  close(): void {
    for (const { refusals } of this.#ways.values()) refusals.flush();
  }

  #policyOf(id: SandboxId): CompiledPolicy {
    const policy = this.#options.policyOf(id);
    if (policy === undefined) return nothing;
    const compiled = this.#compiled.get(policy) ?? compilePolicy(policy);
    this.#compiled.set(policy, compiled);
    return compiled;
  }
}
