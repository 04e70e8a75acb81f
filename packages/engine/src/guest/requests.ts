import { SandboxError, signalNumbers, type SignalName, type SpawnRequest } from "@atoll/protocol";
import { protocolConstants, spawnFlags, toGuest, encodeFrame } from "./frames.ts";
import { PayloadWriter } from "./wire.ts";

/** The processes that a signal reaches: the process group, or also all descendants that left it. */
const signalScopes = { group: 0, everythingStarted: 1 } as const;

/** The Linux resource numbers that we set. */
export const rlimits = { FSIZE: 1, NPROC: 6, NOFILE: 7 } as const;

interface ResourceLimit {
  resource: number;
  soft: number;
  hard: number;
}

/** A spawn as the channel takes it: a user's request, or one of the guest's own tools. */
export interface GuestSpawn extends SpawnRequest {
  tool?: boolean;
  limits?: ResourceLimit[];
}

export function encodeSpawn(id: number, spawn: GuestSpawn): Buffer {
  const flags =
    (spawn.pty === undefined ? 0 : spawnFlags.SPAWN_PTY) |
    (spawn.stdin || spawn.pty !== undefined ? spawnFlags.SPAWN_STDIN : 0) |
    (spawn.tool === true ? spawnFlags.SPAWN_TOOL : 0);
  const limits = spawn.limits ?? [];
  const environment = Object.entries(spawn.env);
  const payload = new PayloadWriter()
    .u32(flags)
    .u32(spawn.windowBytes)
    .u32(spawn.timeoutMs ?? 0)
    .u32(spawn.graceMs)
    .u16(spawn.pty?.rows ?? 0)
    .u16(spawn.pty?.cols ?? 0)
    .str(spawn.user)
    .str(spawn.cwd)
    .u32(limits.length);
  for (const limit of limits) payload.u32(limit.resource).u64(limit.soft).u64(limit.hard);
  payload.u32(spawn.argv.length);
  for (const argument of spawn.argv) payload.str(argument);
  payload.u32(environment.length);
  for (const [name, value] of environment) payload.str(`${name}=${value}`);
  const bytes = payload.finish();
  if (bytes.byteLength > protocolConstants.MAX_TO_GUEST) {
    throw new SandboxError(
      "invalid_argument",
      `Cannot start a process: its arguments and environment take ${bytes.byteLength} bytes`,
      {
        suggestion: `At most ${protocolConstants.MAX_TO_GUEST} bytes fit: write large values to a file first.`,
        details: { bytes: bytes.byteLength, allowed: protocolConstants.MAX_TO_GUEST },
      },
    );
  }
  return encodeFrame(toGuest.SPAWN, id, bytes);
}

export function encodeDial(
  id: number,
  { port, family, windowBytes }: { port: number; family: 4 | 6; windowBytes: number },
): Buffer {
  return encodeFrame(toGuest.DIAL, id, new PayloadWriter().u16(port).u8(family).u32(windowBytes).finish());
}

export function encodeHello(nonce: Buffer): Buffer {
  const payload = new PayloadWriter().u32(protocolConstants.VERSION).bytes(nonce).u64(timeOfDayNs());
  return encodeFrame(toGuest.HELLO, 0, payload.finish());
}

export function encodeRestored(id: number, entropy: Buffer, hostname: string): Buffer {
  const payload = new PayloadWriter().u64(timeOfDayNs()).bytes(entropy).str(hostname);
  return encodeFrame(toGuest.RESTORED, id, payload.finish());
}

/** Encodes the streams whose processes are not counted. */
export function encodeCount(without: readonly number[]): Buffer {
  const payload = new PayloadWriter();
  for (const id of without) payload.u32(id);
  return payload.finish();
}

/** Encodes each directory with the time of its inode's last change at which it certainly has no pipe or socket. */
export function encodeNodes(where: "in" | "synced", places: readonly { path: Buffer; emptyAtNs: bigint }[]): Buffer {
  const payload = new PayloadWriter().u32(where === "synced" ? 1 : 0).u32(places.length);
  for (const { path, emptyAtNs } of places) payload.u64(BigInt.asUintN(64, emptyAtNs)).str(path);
  return payload.finish();
}

/** Encodes a signal to the process group. SIGKILL also reaches what has left it. */
export function encodeSignal(id: number, name: SignalName): Buffer {
  const scope = name === "SIGKILL" ? signalScopes.everythingStarted : signalScopes.group;
  return encodeFrame(toGuest.SIGNAL, id, new PayloadWriter().u32(signalNumbers[name]).u32(scope).finish());
}

function timeOfDayNs(): bigint {
  return BigInt(Date.now()) * 1_000_000n;
}
