import type { ProcessExit, SignalName } from "@atoll/protocol";

/** A piece of output. Events of one process come in the order in which the bytes were read, whatever the stream. */
export interface OutputEvent {
  stream: "stdout" | "stderr";
  data: Buffer;
  /** Of the first byte, within its stream. */
  offset: number;
  /** Of the first byte, within both streams together. */
  at: number;
}

/**
 * Every process that we manage, on the host or in a sandbox.
 *
 * Iterate it for its output: once, by one reader. A reader that is slow makes the process wait; it never makes memory
 * grow. The iteration ends when the process has ended and all that it had written was read. An event counts as taken
 * when the next one is asked for. Leaving the loop early throws the rest of the output away and does not end the
 * process.
 */
export interface Process extends AsyncIterable<OutputEvent> {
  readonly pid: number;
  /**
   * Resolves when the bytes are on their way and there is room for more. Rejects with `invalid_state` once stdin is
   * closed.
   */
  writeStdin(data: Uint8Array | string): Promise<void>;
  /** Idempotent. What was written before is delivered first. */
  closeStdin(): Promise<void>;
  /** To the whole process group. Resolves when the signal is sent; to a process that has ended it does nothing. */
  kill(signal?: SignalName): Promise<void>;
  /**
   * The truth about the end. After a time limit, an abort or SIGKILL, the whole process group is gone before this
   * settles. Rejects when the end cannot be known, saying why. Somebody must read the output meanwhile, or throw it
   * away with `discardOutput`.
   */
  wait(): Promise<ProcessExit>;
  discardOutput(): void;
}
