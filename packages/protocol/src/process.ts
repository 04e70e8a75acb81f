import { z } from "zod";

/** The signals that a user can name, with their numbers on Linux x86-64 and arm64. */
export const signalNumbers = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGQUIT: 3,
  SIGILL: 4,
  SIGTRAP: 5,
  SIGABRT: 6,
  SIGBUS: 7,
  SIGFPE: 8,
  SIGKILL: 9,
  SIGUSR1: 10,
  SIGSEGV: 11,
  SIGUSR2: 12,
  SIGPIPE: 13,
  SIGALRM: 14,
  SIGTERM: 15,
  SIGSTKFLT: 16,
  SIGCHLD: 17,
  SIGCONT: 18,
  SIGSTOP: 19,
  SIGTSTP: 20,
  SIGTTIN: 21,
  SIGTTOU: 22,
  SIGURG: 23,
  SIGXCPU: 24,
  SIGXFSZ: 25,
  SIGVTALRM: 26,
  SIGPROF: 27,
  SIGWINCH: 28,
  SIGIO: 29,
  SIGPWR: 30,
  SIGSYS: 31,
} as const;
export type SignalName = keyof typeof signalNumbers;

const signalNames = new Map<number, SignalName>(
  Object.entries(signalNumbers).map(([name, number]) => [number, name as SignalName]),
);

/** Returns the name of a signal. Real-time signals have no names of their own: `SIGRT34`. */
export function signalName(number: number): SignalName | `SIGRT${number}` {
  return signalNames.get(number) ?? `SIGRT${number}`;
}

/** How a process ended. Exactly one of `exitCode` and `signal` is set; neither is ever made up. */
export interface ProcessExit {
  exitCode: number | null;
  signal: SignalName | `SIGRT${number}` | null;
  /** The process was ended because it reached its time limit. */
  timedOut: boolean;
  /**
   * The process failed, and while it ran the host's kernel killed something in its sandbox for lack of memory. Under
   * gVisor a process that was killed in this way may be reported with exit code 1; that code is gVisor's, and this is
   * the reason.
   */
  outOfMemory: boolean;
  cpuUserMs: number;
  cpuSystemMs: number;
  peakMemoryBytes: number;
}

const text = z.string().refine((value) => !value.includes("\0"), "must not contain NUL");

/** A request to start a process in a sandbox. */
export const SpawnRequest = z.strictObject({
  /** Program and arguments; no shell is involved. A shell is a program like any other: `["bash", "-c", "…"]`. */
  argv: z.array(text).min(1).max(4096),
  env: z.record(z.string().regex(/^[^=\0]+$/, "a variable's name has no '=' in it"), text).default({}),
  /** The working directory; the user's home when empty. */
  cwd: text.default(""),
  /** A name or a number, optionally with `:group`. */
  user: text.default("user"),
  /** Keeps stdin open for `writeStdin`. Otherwise the process reads an end of file. */
  stdin: z.boolean().default(false),
  pty: z.strictObject({ rows: z.int().min(1).max(65_535), cols: z.int().min(1).max(65_535) }).optional(),
  /** The process, and every process that it started, is ended after this time. */
  timeoutMs: z.int().min(1).max(0xffff_ffff).optional(),
  /** The time between SIGTERM and SIGKILL when the time limit is reached. */
  graceMs: z.int().min(0).max(600_000).default(2_000),
  /** How many bytes of output may wait for the reader before the process has to wait. */
  windowBytes: z
    .int()
    .min(4096)
    .max(1024 * 1024)
    .default(256 * 1024),
});
export type SpawnRequest = z.output<typeof SpawnRequest>;
export type SpawnRequestInput = z.input<typeof SpawnRequest>;
