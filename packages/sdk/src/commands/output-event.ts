import type { CommandInfo } from "@atoll/protocol";

/** An event of a command's output, in the order in which the command wrote it. */
export type OutputEvent = OutputData | OutputDropped | OutputEnded;

export interface OutputData {
  type: "stdout" | "stderr";
  /** Position in the common order of both streams, in bytes. */
  at: number;
  /** Position in its own stream, in bytes. */
  offset: number;
  data: Uint8Array;
  /** The bytes as UTF-8; a character that is cut at their end comes with the next event. */
  text: string;
}

/** These bytes are no longer in the command's log. */
export interface OutputDropped {
  type: "dropped";
  at: number;
  bytes: number;
}

export interface OutputEnded {
  type: "ended";
  command: CommandInfo;
}
