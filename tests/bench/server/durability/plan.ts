import { Chance } from "./chance.ts";

/** What one round does and what happens to it. Everything in it follows from its seed. */
export interface Plan {
  seed: number;
  work: "exec" | "stdin" | "upload";
  victim: "client" | "server" | "connection";
  /** Of output, of input or of the file. */
  bytes: number;
  exitCode: number;
  /** The victim is hit when this many bytes have passed between client and server since the work began. */
  hitAt: number[];
  /** Whether a connection that is cut says goodbye or is reset. */
  isReset: boolean;
  /** A run that the caller waits for, or one with a handle. */
  isForeground: boolean;
}

const KiB = 1024;

export function planRound(seed: number): Plan {
  const chance = new Chance(seed);
  const work = chance.oneOf(["exec", "stdin", "upload"]);
  const victim = chance.oneOf(["client", "server", "connection"]);
  const bytes = chance.oneOf([0, 1, chance.between(2, 4 * KiB), chance.between(4 * KiB, 256 * KiB), 1024 * KiB]);
  const hits = victim === "connection" ? chance.between(1, 4) : 1;
  // Around the whole exchange: in the request itself, in the payload, behind the last byte.
  const hitAt = Array.from({ length: hits }, () => Math.floor(chance.next() * (bytes * 1.1 + 1500)));
  return {
    seed,
    work,
    victim,
    bytes,
    exitCode: chance.between(0, 255),
    hitAt: hitAt.toSorted((a, b) => a - b),
    isReset: chance.next() < 0.5,
    isForeground: chance.next() < 0.5,
  };
}

/** The bytes of a round: numbered lines, so that one that is lost, doubled or moved shows where. */
export function payloadOf({ seed, bytes }: Plan): Buffer {
  const lines = Array.from({ length: Math.ceil(bytes / lineBytes) }, (_, index) => lineOf(seed, index));
  return Buffer.from(lines.join("")).subarray(0, bytes);
}

const lineBytes = 32;

function lineOf(seed: number, index: number): string {
  return `${`${seed} line ${index}`.padEnd(lineBytes - 1, ".")}\n`;
}
