import type { ReportFormatId } from "@atoll/runner";
import { UsageError } from "../input/usage-error.ts";

/** The runner is loaded when a report is made, and not for help. A test compares this list with its own. */
export const reportFormatNames = [
  "json",
  "yaml",
  "html",
  "markdown",
  "junit",
  "ctrf",
  "tap",
  "github",
  "swebench",
] as const satisfies readonly ReportFormatId[];

/** Collects an option that may be given several times. */
export function addFormat(text: string, before: readonly string[] | undefined): string[] {
  if (reportFormatNames.some((name) => name === text)) return [...(before ?? []), text];
  throw new UsageError(
    `Cannot make a report of the format ${JSON.stringify(text)}`,
    `Use one of ${reportFormatNames.join(", ")}.`,
  );
}
