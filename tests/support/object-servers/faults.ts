import type { Fault as ContractFault } from "../../../packages/storage/test/support/store-contract.ts";

/** The fault that a test makes a server apply to one request. */
export type Fault =
  /** The server refuses the request and does nothing. */
  | { do: "refuse"; status: number; code: string }
  /** The connection ends, and the server does nothing. */
  | { do: "cut" }
  /** The server carries out the request, and the connection ends before the response. */
  | { do: "act-then-cut" }
  /** A proxy on the way answers with success, and the server does nothing. */
  | { do: "answer"; headers?: Record<string, string>; body: string }
  /** The connection ends in the middle of the response body. */
  | { do: "cut-body"; afterBytes: number }
  /** The request waits until this settles. */
  | { do: "hold"; until: Promise<void> };

/** A plan is called once per request; `operation` is the name in the service's own documentation. */
export type FaultPlan = (request: { operation: string; key: string; nth: number }) => Fault | undefined;

/** Applies the same fault to `times` requests of one operation, after the first `skip` have succeeded. */
export function failing(operation: string, fault: Fault, { skip = 0, times = 1 } = {}): FaultPlan {
  return (request) => {
    const isMeant = request.operation === operation && request.nth > skip && request.nth <= skip + times;
    return isMeant ? fault : undefined;
  };
}

const contractFaultActions: Readonly<Record<ContractFault["kind"], Fault>> = {
  unavailable: { do: "refuse", status: 503, code: "ServiceUnavailable" },
  cut: { do: "cut" },
  lost_answer: { do: "act-then-cut" },
};

/** Translates a fault of the contract suite into a plan that applies it to the next requests, whatever they are. */
export function contractFaults({ kind, times }: ContractFault): FaultPlan {
  let left = times;
  return () => (left-- > 0 ? contractFaultActions[kind] : undefined);
}
