import type { Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import type { EgressAnswer, EgressRequest, EgressHandler } from "@atoll/engine";
import { parseAddress, parseHost, type CompiledPolicy } from "@atoll/guard";
import { deadlineAfter } from "@atoll/protocol";
import { connectFirst, type Connected } from "./connect-first.ts";
import { Pace } from "./pace.ts";
import { resolveName, type ResolveName } from "./resolve-name.ts";

export interface EgressDecision extends EgressRequest {
  verdict: EgressAnswer["verdict"];
  because: string;
  /** The address that was connected to. */
  address?: string;
}

export interface EgressGateOptions {
  /** Called at every connection, so that a changed policy applies at once. */
  policy: () => CompiledPolicy;
  /** Called once for each connection that was asked for. */
  onDecision: (decision: EgressDecision) => void;
  resolve?: ResolveName;
  /** The time limit for the name and the connection together. */
  timeoutMs?: number;
}

/** The network access of one sandbox. */
export interface EgressGate {
  /** The handler for the engine. */
  onEgress: EgressHandler;
  /** Closes the connections that the current policy does not allow, and returns how many. */
  closeForbidden(): number;
}

interface Open {
  ask: EgressRequest;
  address: string;
}

/** The most connections that may be in progress at once; more are refused. */
const mostPending = 128;

/** The most addresses of one name that are tried. */
const mostAddresses = 16;

/**
 * Allows connections out of a sandbox according to its policy. A name is checked first, and one that is not allowed is
 * not even looked up, so that lookups carry no data out. Then the name is resolved here, once; every address is
 * checked, and the connection goes to one that is allowed: no later answer of a name server can change where it goes.
 */
export function createEgressHandler(options: EgressGateOptions): EgressGate {
  const { policy, onDecision, resolve = resolveName, timeoutMs = 15_000 } = options;
  const open = new Map<Socket, Open>();
  // Each turn may cost the host a lookup and a connection.
  const pace = new Pace({ perSecond: 50, burst: 500 });
  let pending = 0;

  const isAllowed = ({ ask, address: text }: Open): boolean => {
    const address = parseAddress(text);
    if (address === undefined || !policy().decide(ask.host, ask.port).allowed) return false;
    return isByAddress(ask) || policy().decideResolved(address, ask.port).allowed;
  };

  const keep = (socket: Socket, entry: Open): void => {
    open.set(socket, entry);
    socket.on("close", () => open.delete(socket));
    // Without a listener a reset connection would end the server. The relay of the connection sees its close.
    socket.on("error", () => undefined);
  };

  const attemptInTurn = async (ask: EgressRequest): Promise<Outcome> => {
    if (pending >= mostPending)
      return { verdict: "refused", because: "too many connections are waiting for an answer" };
    pending += 1;
    try {
      const waitMs = pace.takeTurn();
      if (waitMs > 0) await delay(waitMs);
      const signal = deadlineAfter(timeoutMs);
      return await attempt(ask, policy(), resolve, signal).catch((error: unknown) => failureOf(error, signal));
    } finally {
      pending -= 1;
    }
  };

  return {
    onEgress: async (ask) => {
      const outcome = await attemptInTurn(ask);
      if (!("socket" in outcome)) {
        onDecision({ ...ask, verdict: outcome.verdict, because: outcome.because });
        return { verdict: outcome.verdict, reason: outcome.because };
      }
      const { socket, address, because } = outcome;
      // The policy may have changed while the connection was being made.
      if (!isAllowed({ ask, address })) {
        socket.destroy();
        const reason = "the policy changed during the connection";
        onDecision({ ...ask, verdict: "refused", because: reason });
        return { verdict: "refused", reason };
      }
      keep(socket, { ask, address });
      onDecision({ ...ask, verdict: "allowed", because, address });
      return { verdict: "allowed", socket };
    },
    closeForbidden: () => {
      const forbidden = [...open].filter(([, entry]) => !isAllowed(entry));
      for (const [socket] of forbidden) {
        open.delete(socket);
        socket.destroy();
      }
      return forbidden.length;
    },
  };
}

type Outcome =
  | (Connected & { because: string })
  | { verdict: Exclude<EgressAnswer["verdict"], "allowed">; because: string };

async function attempt(
  ask: EgressRequest,
  policy: CompiledPolicy,
  resolve: ResolveName,
  signal: AbortSignal,
): Promise<Outcome> {
  const decision = policy.decide(ask.host, ask.port);
  const host = parseHost(ask.host);
  if (!decision.allowed || host === undefined) return { verdict: "refused", because: decision.because };
  const { because } = decision;
  if (host.kind === "address") {
    return { ...(await connectFirst([host.address.toString()], ask.port, signal)), because };
  }
  const resolved = (await abortable(resolve(host.name, signal), signal))
    .slice(0, mostAddresses)
    .flatMap((text) => parseAddress(text) ?? []);
  if (resolved.length === 0) return { verdict: "unknown_name", because: `the name ${host.name} has no address` };
  const judged = resolved.map((address) => ({ address, ...policy.decideResolved(address, ask.port) }));
  const allowed = judged.filter((one) => one.allowed);
  if (allowed.length === 0) return { verdict: "refused", because: judged[0]?.because ?? "" };
  const addresses = allowed.map(({ address }) => address.toString());
  return { ...(await connectFirst(addresses, ask.port, signal)), because };
}

/** Rejects when the signal aborts, even if the resolver ignores the signal. */
async function abortable<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let abort: (() => void) | undefined;
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(signal.reason as Error);
    signal.addEventListener("abort", abort, { once: true });
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    if (abort !== undefined) signal.removeEventListener("abort", abort);
  }
}

const reasons: Readonly<Record<string, string>> = {
  ECONNREFUSED: "nothing listens there",
  EHOSTUNREACH: "there is no route to it",
  ENETUNREACH: "there is no route to it",
  ESERVFAIL: "the name server could not answer",
  EREFUSED: "the name server refused to answer",
  ETIMEOUT: "the name server did not answer",
};

function failureOf(error: unknown, signal: AbortSignal): Outcome {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  if (signal.aborted || code === "ETIMEDOUT" || code === "ETIMEOUT") {
    return { verdict: "timed_out", because: reasons[code] ?? "it did not answer in time" };
  }
  // The text of an unknown error may reveal facts about the host; it stays here.
  return { verdict: "unreachable", because: reasons[code] ?? "the connection could not be made" };
}

function isByAddress(ask: EgressRequest): boolean {
  return parseHost(ask.host)?.kind === "address";
}
