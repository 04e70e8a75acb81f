import type { Duplex } from "node:stream";
import { pollUntil } from "@atoll/host";
import { deadlineAfter, firstToAbort, isSandboxError, SandboxError } from "@atoll/protocol";

/** The signature of `Sandbox.dial`. */
export type Dial<Connection extends Duplex = Duplex> = (
  port: number,
  options: { family?: 4 | 6; signal: AbortSignal },
) => Promise<Connection>;

/**
 * Connects to the loopback address on which a program listens: a program that binds to `localhost` may have only ::1.
 */
export async function dialEither<Connection extends Duplex>(
  dial: Dial<Connection>,
  port: number,
  signal: AbortSignal,
): Promise<Connection> {
  try {
    return await dial(port, { family: 4, signal });
  } catch (refusal) {
    if (!isRefused(refusal)) throw refusal;
    return dial(port, { family: 6, signal }).catch((error: unknown) => {
      // The error of a sandbox without IPv6 would mislead.
      throw isSandboxError(error, "spawn_failed") ? refusal : error;
    });
  }
}

export function isRefused(error: unknown): boolean {
  return isSandboxError(error, "spawn_failed") && error.details["errno"] === "ECONNREFUSED";
}

export interface WaitForPortOptions {
  timeoutMs: number;
  signal?: AbortSignal;
}

/**
 * Resolves when a program inside accepts connections on the port. It connects at growing intervals, because no sandbox
 * reports when a port is opened. Rejects with `timed_out`, with the signal's reason, or at once when the sandbox has
 * ended.
 */
export async function waitForPort(dial: Dial, port: number, { timeoutMs, signal }: WaitForPortOptions): Promise<void> {
  const late = deadlineAfter(timeoutMs);
  using stop = firstToAbort(signal, late);
  const isOpen = async (): Promise<boolean> => {
    try {
      const connection = await dialEither(dial, port, stop);
      connection.on("error", () => undefined);
      connection.destroy();
      return true;
    } catch (error) {
      if (isRefused(error)) return false;
      throw error;
    }
  };
  try {
    if (await pollUntil(isOpen, { deadlineMs: timeoutMs, signal: stop })) return;
  } catch (error) {
    signal?.throwIfAborted();
    if (!late.aborted || error !== late.reason) throw error;
  }
  throw new SandboxError("timed_out", `Cannot reach port ${port}: nothing listens there after ${timeoutMs} ms`, {
    suggestion: "Look at the output of the command that should listen, and at the address that it binds to.",
    details: { port, timeoutMs },
  });
}
