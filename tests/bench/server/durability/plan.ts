import { SeededRandom } from "./seeded-random.ts";

/** The work of one round, and the failure in it. All of it follows from the seed. */
export interface Plan {
  seed: number;
  work: "exec" | "stdin" | "upload";
  victim: "client" | "server" | "connection";
  /** The size of the output, of the input or of the file. */
  bytes: number;
  exitCode: number;
  /** The victim is hit when this many bytes have passed between client and server since the work started. */
  hitAt: number[];
  /** Whether a cut connection is closed in order or reset. */
  isReset: boolean;
  /** Whether the caller waits for the run, or gets a handle for it. */
  isForeground: boolean;
}

const KiB = 1024;

export function planRound(seed: number): Plan {
  const random = new SeededRandom(seed);
  const work = random.oneOf(["exec", "stdin", "upload"]);
  const victim = random.oneOf(["client", "server", "connection"]);
  const bytes = random.oneOf([0, 1, random.between(2, 4 * KiB), random.between(4 * KiB, 256 * KiB), 1024 * KiB]);
  const hits = victim === "connection" ? random.between(1, 4) : 1;
  // The range covers the whole exchange: the request itself, the payload, and the time after the last byte.
  const hitAt = Array.from({ length: hits }, () => Math.floor(random.next() * (bytes * 1.1 + 1500)));
  return {
    seed,
    work,
    victim,
    bytes,
    exitCode: random.between(0, 255),
    hitAt: hitAt.toSorted((a, b) => a - b),
    isReset: random.next() < 0.5,
    isForeground: random.next() < 0.5,
  };
}

/** Returns the bytes of a round: numbered lines, so that a lost, doubled or moved one can be found. */
export function payloadOf({ seed, bytes }: Plan): Buffer {
  const lines = Array.from({ length: Math.ceil(bytes / lineBytes) }, (_, index) => lineOf(seed, index));
  return Buffer.from(lines.join("")).subarray(0, bytes);
}

const lineBytes = 32;

function lineOf(seed: number, index: number): string {
  return `${`${seed} line ${index}`.padEnd(lineBytes - 1, ".")}\n`;
}
