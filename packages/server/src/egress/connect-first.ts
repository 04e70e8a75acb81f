import { connect, type Socket } from "node:net";

/** The time after which the next address is tried as well; an earlier one may still win. */
const headStartMs = 250;

export interface Connected {
  socket: Socket;
  /** The one of the addresses that the socket is connected to. */
  address: string;
}

/**
 * Connects to the first address that answers (RFC 8305): one after the other, each with a head start, alternating
 * between IPv6 and IPv4. Rejects with the first failure when all have failed, and with the signal's reason when it
 * aborts; no attempt outlives the call.
 */
export function connectFirst(addresses: readonly string[], port: number, signal: AbortSignal): Promise<Connected> {
  return new Promise((resolve, reject) => {
    const waiting = alternateFamilies(addresses);
    const attempts = new Set<Socket>();
    let firstFailure: Error | undefined;
    let headStart: NodeJS.Timeout | undefined;

    const settle = (winner?: Socket): void => {
      clearTimeout(headStart);
      signal.removeEventListener("abort", abort);
      for (const attempt of attempts) if (attempt !== winner) attempt.destroy();
    };
    const abort = (): void => {
      settle();
      reject(signal.reason as Error);
    };
    const startNext = (): void => {
      clearTimeout(headStart);
      const host = waiting.shift();
      if (host === undefined) {
        if (attempts.size > 0) return;
        settle();
        reject(firstFailure ?? new Error("There is no address to connect to"));
        return;
      }
      const socket = connect({ host, port, allowHalfOpen: true, noDelay: true, keepAlive: true });
      attempts.add(socket);
      const fail = (error: Error): void => {
        firstFailure ??= error;
        attempts.delete(socket);
        startNext();
      };
      socket.once("error", fail);
      socket.once("connect", () => {
        socket.removeListener("error", fail);
        settle(socket);
        resolve({ socket, address: host });
      });
      headStart = setTimeout(startNext, headStartMs);
    };

    if (signal.aborted) return abort();
    signal.addEventListener("abort", abort, { once: true });
    startNext();
  });
}

function alternateFamilies(addresses: readonly string[]): string[] {
  const six = addresses.filter((address) => address.includes(":"));
  const four = addresses.filter((address) => !address.includes(":"));
  const [first, second] = addresses[0]?.includes(":") === true ? [six, four] : [four, six];
  const longer = Math.max(first.length, second.length);
  return Array.from({ length: longer }, (_, index) => [first[index], second[index]])
    .flat()
    .filter((address) => address !== undefined);
}
