import { constants } from "node:os";
import { isSandboxError, type CommandInfo } from "@atoll/protocol";

/** The exit codes of `atoll` itself; all others are those of commands. */
export const exitCodes = {
  ok: 0,
  failure: 1,
  usage: 2,
  infrastructure: 3,
  timedOut: 124,
  ownFailure: 125,
  notExecutable: 126,
  noSuchProgram: 127,
} as const;

export const exitCodeHelp = `Exit codes:
  0        done
  1        it could not be done; stderr has the reason and what to do
  2        the command line is wrong
  130      interrupted with Ctrl-C

  task and swe end with 1 when a verdict is not the expected one, and with 3
  when something of ours failed, so that there is no verdict.

  exec, run, attach and shell have the exit code of their command:
  0 to 255 the command ended with this code
  124      it reached its time limit
  125      atoll itself failed, its command line is wrong, or how the command
           ended cannot be known
  126      the program exists and cannot be started
  127      there is no such program
  128+n    it was ended by signal n: 137 is SIGKILL, 143 is SIGTERM`;

/** Returns the exit code that a shell would report for the end of this command. */
export function exitCodeOf(command: Pick<CommandInfo, "state" | "exitCode" | "signal" | "timedOut">): number {
  if (command.state === "lost") return exitCodes.ownFailure;
  if (command.timedOut) return exitCodes.timedOut;
  if (command.exitCode !== null) return command.exitCode;
  return command.signal === null ? exitCodes.ownFailure : exitCodeOfSignal(command.signal);
}

/** Returns the exit code that shells report for a program that was ended by a signal. */
export function exitCodeOfSignal(name: string): number {
  const known = new Map<string, number>(Object.entries(constants.signals)).get(name);
  return 128 + (known ?? Number(/^SIGRT(\d+)$/.exec(name)?.[1] ?? 0));
}

/** Returns the exit code that shells report for a program that could not be started, or 125 for any other failure. */
export function exitCodeOfStart(error: unknown): number {
  if (!isSandboxError(error, "spawn_failed")) return exitCodes.ownFailure;
  return error.details["errno"] === "ENOENT" ? exitCodes.noSuchProgram : exitCodes.notExecutable;
}
