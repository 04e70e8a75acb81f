import { constants } from "node:os";
import { isSandboxError, type CommandInfo } from "@atoll/protocol";

/** Every exit code that is ours; the rest are those of commands. */
export const exitCodes = {
  ok: 0,
  failure: 1,
  usage: 2,
  timedOut: 124,
  ownFailure: 125,
  notExecutable: 126,
  noSuchProgram: 127,
} as const;

export const exitCodeHelp = `Exit codes:
  0        done
  1        it could not be done; stderr says why and what helps
  2        the command line is wrong
  130      interrupted with Ctrl-C

  exec, run, attach and shell end as their command did:
  0 to 255 its exit code
  124      it reached its time limit
  125      atoll itself failed, its command line is wrong, or how the command
           ended cannot be known
  126      the program is there and cannot be started
  127      there is no such program
  128+n    it was ended by signal n: 137 is SIGKILL, 143 is SIGTERM`;

/** How a shell would tell the end of this command. */
export function exitCodeOf(command: Pick<CommandInfo, "state" | "exitCode" | "signal" | "timedOut">): number {
  if (command.state === "lost") return exitCodes.ownFailure;
  if (command.timedOut) return exitCodes.timedOut;
  if (command.exitCode !== null) return command.exitCode;
  return command.signal === null ? exitCodes.ownFailure : exitCodeOfSignal(command.signal);
}

/** As shells tell that a signal ended a program. */
export function exitCodeOfSignal(name: string): number {
  const known = new Map<string, number>(Object.entries(constants.signals)).get(name);
  return 128 + (known ?? Number(/^SIGRT(\d+)$/.exec(name)?.[1] ?? 0));
}

/** As shells tell a program that could not be started; anything else that went wrong was not the command's doing. */
export function exitCodeOfStart(error: unknown): number {
  if (!isSandboxError(error, "spawn_failed")) return exitCodes.ownFailure;
  return error.details["errno"] === "ENOENT" ? exitCodes.noSuchProgram : exitCodes.notExecutable;
}
