import type { ProcessExit, SignalName } from "@atoll/protocol";

/** A piece of output. Events of one process come in the order in which the bytes were read, whatever the stream. */
export interface OutputEvent {
  stream: "stdout" | "stderr";
  data: Buffer;
  /** The offset of the first byte within its stream. */
  offset: number;
  /** The offset of the first byte within both streams together. */
  at: number;
}

/**
 * Every process that we manage, on the host or in a sandbox.
 *
 * Iterate it for its output: once, by one reader. A slow reader makes the process wait; memory does not grow. The
 * iteration ends when the process has ended and all its output was read. An event counts as taken when the next one is
 * requested. A reader that leaves the loop early throws the rest of the output away and does not end the process.
 */
export interface Process extends AsyncIterable<OutputEvent> {
  readonly pid: number;
  /** Resolves when the bytes are sent and there is room for more. Rejects with `invalid_state` once stdin is closed. */
  writeStdin(data: Uint8Array | string): Promise<void>;
  /** Idempotent. Everything that was written before is delivered first. */
  closeStdin(): Promise<void>;
  /** Signals the whole process group. Resolves when the signal is sent; does nothing if the process has ended. */
  kill(signal?: SignalName): Promise<void>;
  /**
   * Resolves to how the process ended. After a time limit, an abort or SIGKILL, the whole process group is gone before
   * this settles. Rejects with the reason when the end cannot be known. The caller must read the output at the same
   * time, or throw it away with `discardOutput`.
   */
  wait(): Promise<ProcessExit>;
  discardOutput(): void;
}
