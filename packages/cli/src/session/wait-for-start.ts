import type { CommandHandle } from "@atoll/sdk";
import type { Cli } from "../cli.ts";

/**
 * Waits for a command to start. If the user interrupts that, the command is ended, and a note says why this may take a
 * moment.
 */
export async function waitForStart(cli: Cli, start: Promise<CommandHandle>): Promise<CommandHandle> {
  const printHint = (): void => cli.note("Interrupted: what was being started is ended. Ctrl-C again leaves it.");
  cli.signal.addEventListener("abort", printHint, { once: true });
  try {
    return await cli.during("Starting", start);
  } finally {
    cli.signal.removeEventListener("abort", printHint);
  }
}
