import type { Fault as ContractFault } from "../../../packages/storage/test/support/store-contract.ts";
import type { Fault, FaultPlan } from "./faults.ts";

const faults: Readonly<Record<ContractFault["kind"], Fault>> = {
  unavailable: { do: "refuse", status: 503, code: "ServiceUnavailable" },
  cut: { do: "cut" },
  lost_answer: { do: "act-then-cut" },
};

/** The faults of the contract suite: the next requests, whatever they are. */
export function contractFaults({ kind, times }: ContractFault): FaultPlan {
  let left = times;
  return () => (left-- > 0 ? faults[kind] : undefined);
}
