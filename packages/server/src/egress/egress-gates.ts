import type { EgressHandler } from "@atoll/engine";
import { allOf, compilePolicy, type CompiledPolicy } from "@atoll/guard";
import {
  allowsOperation,
  internetOnly,
  type EgressPolicy,
  type SandboxId,
  type SecurityProfile,
} from "@atoll/protocol";
import { createEgressHandler, type EgressDecision, type EgressGate } from "./create-egress-handler.ts";
import { RefusalTally, type LoggedRefusal } from "./refusal-tally.ts";
import type { ResolveName } from "./resolve-name.ts";

/** The policy of a sandbox with its own ceilings. */
interface EgressTerms {
  egress: EgressPolicy;
  egressCeiling?: EgressPolicy | undefined;
  profile?: SecurityProfile | undefined;
}

export interface EgressGatesOptions {
  /**
   * Returns the policy in force and the ceiling of the key that set it. A sandbox that is not registered yet may reach
   * nothing.
   */
  policyOf(id: SandboxId): EgressTerms | undefined;
  /** The ceiling of the server for all sandboxes. */
  ceiling: EgressPolicy;
  resolve?: ResolveName;
  onAllowed(id: SandboxId, decision: EgressDecision): void;
  /** Called for one refusal, or for many together. */
  onRefused(id: SandboxId, refusal: LoggedRefusal): void;
}

interface GateEntry {
  gate: EgressGate;
  refusals: RefusalTally;
}

const noEgress: EgressPolicy = { allow: [], deny: [] };
const nothing = compilePolicy(noEgress);

/** The network access of all sandboxes. */
export class EgressGates {
  #options: EgressGatesOptions;
  #gates = new Map<SandboxId, GateEntry>();
  /** Compiled policies. A changed policy is another object, so that an entry never becomes wrong. */
  #compiled = new WeakMap<EgressPolicy, CompiledPolicy>();

  constructor(options: EgressGatesOptions) {
    this.#options = options;
  }

  handlerFor(id: SandboxId): EgressHandler {
    const known = this.#gates.get(id);
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
    this.#gates.set(id, { gate, refusals });
    return gate.onEgress;
  }

  /** Closes connections that are no longer allowed. It is called after a change of policy. */
  closeForbidden(id: SandboxId): void {
    this.#gates.get(id)?.gate.closeForbidden();
  }

  forget(id: SandboxId): void {
    this.#gates.get(id)?.refusals.flush();
    this.#gates.delete(id);
  }

  /** Logs the refusals that were only counted so far. */
  close(): void {
    for (const { refusals } of this.#gates.values()) refusals.flush();
  }

  #policyOf(id: SandboxId): CompiledPolicy {
    const found = this.#options.policyOf(id);
    if (found === undefined) return nothing;
    // Earlier servers recorded no ceiling, and applied none.
    const { egress, egressCeiling = internetOnly, profile } = found;
    const isAllowed = profile === undefined || allowsOperation(profile, "network_client");
    const ofProfile = isAllowed ? profile?.egress : noEgress;
    return allOf([
      { policy: this.#compile(egress) },
      ...(ofProfile === undefined ? [] : [{ name: `the profile ${profile?.name}`, policy: this.#compile(ofProfile) }]),
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
