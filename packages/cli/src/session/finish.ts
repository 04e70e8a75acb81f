import type { CommandInfo } from "@atoll/protocol";
import type { CommandHandle } from "@atoll/sdk";
import type { Cli } from "../cli.ts";
import { exitCodeOf } from "../exit-code.ts";
import { formatDuration } from "../output/amount.ts";
import { printReattachHint, type SessionEnd } from "./attach-to.ts";

/** Sets our exit code to the command's, and explains on stderr what the code alone does not show. */
export async function finish(cli: Cli, handle: CommandHandle, end: SessionEnd): Promise<void> {
  if (end.how === "detached") {
    printReattachHint(cli, handle.command);
    return;
  }
  printEnd(cli, end.command);
  cli.exitCode = exitCodeOf(end.command);
}

export function printEnd(cli: Cli, command: CommandInfo): void {
  if (command.state === "lost") {
    cli.note(`atoll: how the command ended cannot be known: ${command.lostBecause ?? "no reason was given"}`);
  } else if (command.timedOut) {
    const ranMs = (command.endedAtMs ?? command.startedAtMs) - command.startedAtMs;
    cli.note(`atoll: the command reached its time limit and was ended after ${formatDuration(ranMs)}`);
  }
}
