/** What a test makes a server do to one request. */
export type Fault =
  /** Refuses and does nothing. */
  | { do: "refuse"; status: number; code: string }
  /** The connection ends and nothing was done. */
  | { do: "cut" }
  /** It is done, and the connection ends before the answer. */
  | { do: "act-then-cut" }
  /** Somebody on the way answers as if all were well, and nothing was done. */
  | { do: "answer"; headers?: Record<string, string>; body: string }
  /** The connection ends in the middle of the answer's body. */
  | { do: "cut-body"; afterBytes: number }
  /** Nothing happens before this settles. */
  | { do: "hold"; until: Promise<void> };

/** Asked once per request; `operation` is the name in the service's own documentation. */
export type FaultPlan = (request: { operation: string; key: string; nth: number }) => Fault | undefined;

/** The same fault for the first `times` requests of one operation, after `skip` that go well. */
export function failing(operation: string, fault: Fault, { skip = 0, times = 1 } = {}): FaultPlan {
  return (request) => {
    const isMeant = request.operation === operation && request.nth > skip && request.nth <= skip + times;
    return isMeant ? fault : undefined;
  };
}
