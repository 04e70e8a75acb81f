import { createInterface } from "node:readline/promises";
import type { Cli } from "../cli.ts";
import { UsageError } from "../input/usage-error.ts";

/** Asks on stderr; only "y" and "yes" agree. Without a terminal the flag has to be given. */
export async function confirm(cli: Cli, question: string, flag: string): Promise<boolean> {
  if (!cli.stdin.isTTY || cli.isJson) {
    throw new UsageError(`Cannot ask for confirmation without a terminal: ${question}`, `Agree to it with ${flag}.`);
  }
  const lines = createInterface({ input: cli.stdin, output: cli.stderr });
  try {
    const answer = await lines.question(`${question} [y/N] `, { signal: cli.signal });
    return /^y(es)?$/i.test(answer.trim());
  } finally {
    lines.close();
  }
}
