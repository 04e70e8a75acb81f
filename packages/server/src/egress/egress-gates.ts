import type { EgressHandler } from "@atoll/engine";
import { internetOnly, type EgressPolicy, type SandboxId } from "@atoll/protocol";
import { allOf, compilePolicy, type CompiledPolicy } from "./compile-policy.ts";
import { createEgressHandler, type EgressDecision, type EgressGate } from "./create-egress-handler.ts";
import { RefusalTally, type LoggedRefusal } from "./refusal-tally.ts";
import type { ResolveName } from "./resolve-name.ts";

export interface EgressGatesOptions {
  /** The policy in force and the ceiling of the key that set it; a sandbox that nobody has yet may reach nothing. */
  policyOf(id: SandboxId): { egress: EgressPolicy; egressCeiling?: EgressPolicy | undefined } | undefined;
  /** What the server allows to all. */
  ceiling: EgressPolicy;
  resolve?: ResolveName;
  onAllowed(id: SandboxId, decision: EgressDecision): void;
  /** Of each, or of many as one. */
  onRefused(id: SandboxId, refusal: LoggedRefusal): void;
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
    const { resolve } = this.#options;
    const refusals = new RefusalTally((refusal) => this.#options.onRefused(id, refusal));
    const gate = createEgressHandler({
      policy: () => this.#policyOf(id),
      ...(resolve === undefined ? {} : { resolve }),
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
    const found = this.#options.policyOf(id);
    if (found === undefined) return nothing;
    // Servers before this one recorded no ceiling, and looked at none.
    const { egress, egressCeiling = internetOnly } = found;
    return allOf([
      { policy: this.#compile(egress) },
      { name: "the ceiling of its key", policy: this.#compile(egressCeiling) },
      { name: "the ceiling of this server", policy: this.#compile(this.#options.ceiling) },
    ]);
  }

  #compile(policy: EgressPolicy): CompiledPolicy {
    const compiled = this.#compiled.get(policy) ?? compilePolicy(policy);
    this.#compiled.set(policy, compiled);
    return compiled;
  }
}
