import type { CommandHandle } from "@atoll/sdk";
import type { Cli } from "../cli.ts";

/**
 * Waits for a command to start. Who gives up meanwhile is told why that may take a moment: the command is not left
 * behind.
 */
export async function starting(cli: Cli, start: Promise<CommandHandle>): Promise<CommandHandle> {
  const printHint = (): void => cli.note("Interrupted: what was being started is ended. Ctrl-C again leaves it.");
  cli.signal.addEventListener("abort", printHint, { once: true });
  try {
    return await cli.during("Starting", start);
  } finally {
    cli.signal.removeEventListener("abort", printHint);
  }
}
