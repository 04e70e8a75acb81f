import type { Diagnostic } from "@atoll/live";
import { isSandboxError } from "@atoll/protocol";
import type { Cli } from "../cli.ts";
import { reportFor } from "./check-formats.ts";

/** Shows on stderr the mistakes in the code that made the work fail, with the lines around them. */
export async function showingMistakes<Value>(cli: Cli, folder: string, work: Promise<Value>): Promise<Value> {
  try {
    return await work;
  } catch (error) {
    const found = isSandboxError(error) ? error.details["diagnostics"] : undefined;
    if (Array.isArray(found) && found.length > 0 && !cli.isJson) {
      await cli.write(reportFor(cli, folder, found as Diagnostic[]), "stderr");
    }
    throw error;
  }
}
