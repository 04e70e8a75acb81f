import type { CommandId, CommandInfo } from "@atoll/protocol";
import type { CollectedOutput } from "./collected-output.ts";

/** How a command ended, and its output. An exit code other than 0 is a result like any other. */
export interface CommandResult {
  id: CommandId;
  /** `null` when a signal ended the command, or when its end is not known. */
  exitCode: number | null;
  signal: string | null;
  timedOut: boolean;
  /** The command failed, and the sandbox ran out of memory while it ran. */
  outOfMemory: boolean;
  stdout: string;
  stderr: string;
  /** How many bytes are missing from the middle of the output, because there were more than are kept. */
  droppedBytes: number;
  /** The reason, when the end of the command cannot be known. */
  lostBecause?: string;
  durationMs: number | undefined;
  /** Everything the server knows about the command. */
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
