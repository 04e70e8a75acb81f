import type { CommandInfo } from "@atoll/protocol";
import type { CommandHandle } from "@atoll/sdk";
import type { Cli } from "../cli.ts";
import { exitCodeOf } from "../exit-code.ts";
import { formatDuration } from "../output/amount.ts";
import type { SessionEnd } from "./attach-to.ts";
import { printReattachHint } from "./print-reattach-hint.ts";

/** Sets our exit code to the command's, and explains on stderr what the code alone does not show. */
export async function finish(cli: Cli, handle: CommandHandle, parting: SessionEnd): Promise<void> {
  if (parting.how === "detached") {
    printReattachHint(cli, handle.command);
    return;
  }
  printEnd(cli, parting.command);
  cli.exitCode = exitCodeOf(parting.command);
}

export function printEnd(cli: Cli, command: CommandInfo): void {
  if (command.state === "lost") {
    cli.note(`atoll: how the command ended cannot be known: ${command.lostBecause ?? "no reason was given"}`);
  } else if (command.timedOut) {
    const ranMs = (command.endedAtMs ?? command.startedAtMs) - command.startedAtMs;
    cli.note(`atoll: the command reached its time limit and was ended after ${formatDuration(ranMs)}`);
  }
}
