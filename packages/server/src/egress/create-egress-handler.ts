import type { Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import type { EgressAnswer, EgressRequest, EgressHandler } from "@atoll/engine";
import { deadlineAfter } from "@atoll/protocol";
import { parseAddress } from "./address.ts";
import type { CompiledPolicy } from "./compile-policy.ts";
import { connectFirst, type Connected } from "./connect-first.ts";
import { parseHost } from "./host.ts";
import { Pace } from "./pace.ts";
import { resolveName, type ResolveName } from "./resolve-name.ts";

export interface EgressDecision extends EgressRequest {
  verdict: EgressAnswer["verdict"];
  because: string;
  /** What was connected to. */
  address?: string;
}

export interface EgressGateOptions {
  /** Asked at every connection: what it returns from now on holds from now on. */
  policy: () => CompiledPolicy;
  /** Told of everything that was asked for, once each. */
  onDecision: (decision: EgressDecision) => void;
  resolve?: ResolveName;
  /** For the name and the connection together. */
  timeoutMs?: number;
}

/** The way out of one sandbox. */
export interface EgressGate {
  /** To be given to the engine. */
  onEgress: EgressHandler;
  /** Closes the connections that the policy as it is now would not allow, and tells how many. */
  closeNow(): number;
}

interface Open {
  ask: EgressRequest;
  address: string;
}

/** More connections than this waiting for an answer at once are refused. */
const mostPending = 128;

/** More addresses of one name than this are not looked at. */
const mostAddresses = 16;

/**
 * Lets connections out of a sandbox as its policy says. A name is judged first, and one that is not allowed is not even
 * looked up, so that lookups carry nothing out. Then the name is resolved here, once; every address is judged, and the
 * connection goes to one that was: no later answer of a name server can change where it goes.
 */
export function createEgressHandler(options: EgressGateOptions): EgressGate {
  const { policy, onDecision, resolve = resolveName, timeoutMs = 15_000 } = options;
  const open = new Map<Socket, Open>();
  // Each of them may be a lookup and a connection of the host's.
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
    // Without a listener a reset connection would end the server. Whoever relays it hears of it by its close.
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
        const reason = "the policy has changed meanwhile";
        onDecision({ ...ask, verdict: "refused", because: reason });
        return { verdict: "refused", reason };
      }
      keep(socket, { ask, address });
      onDecision({ ...ask, verdict: "allowed", because, address });
      return { verdict: "allowed", socket };
    },
    closeNow: () => {
      const shut = [...open].filter(([, entry]) => !isAllowed(entry));
      for (const [socket] of shut) {
        open.delete(socket);
        socket.destroy();
      }
      return shut.length;
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

/** A resolver that does not heed the signal is left behind. */
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
  // The text of an unknown error may tell about the host; it stays here.
  return { verdict: "unreachable", because: reasons[code] ?? "the connection could not be made" };
}

function isByAddress(ask: EgressRequest): boolean {
  return parseHost(ask.host)?.kind === "address";
}
