import type { CommandId, CommandInfo } from "@atoll/protocol";
import type { CollectedOutput } from "./collected-output.ts";

/** How a command ended, and what it said. A code other than 0 is a result like any other. */
export interface CommandResult {
  id: CommandId;
  /** `null` when a signal ended it, or when its end is not known. */
  exitCode: number | null;
  signal: string | null;
  timedOut: boolean;
  /** It did not end well, and meanwhile the sandbox's memory was used up. */
  outOfMemory: boolean;
  stdout: string;
  stderr: string;
  /** Bytes that are missing from the middle of the output, because there were more than are kept. */
  droppedBytes: number;
  /** Set when how it ended cannot be known: why. */
  lostBecause?: string;
  durationMs: number | undefined;
  /** Everything the server knows of it. */
  command: CommandInfo;
}

export function commandResult(command: CommandInfo, output: CollectedOutput): CommandResult {
  return {
    id: command.id,
    exitCode: command.exitCode,
    signal: command.signal,
    timedOut: command.timedOut,
    outOfMemory: command.outOfMemory === true,
    stdout: output.stdout,
    stderr: output.stderr,
    droppedBytes: output.droppedBytes,
    ...(command.lostBecause === undefined ? {} : { lostBecause: command.lostBecause }),
    durationMs: command.endedAtMs === undefined ? undefined : command.endedAtMs - command.startedAtMs,
    command,
  };
}
