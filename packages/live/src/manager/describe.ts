import type { Diagnostic } from "../compiler/artifact.ts";
import type { AppEnd } from "../isolation/app-host.ts";

/** Says why a process ended, as the end of a sentence that begins with "because". */
export function describeEnd(end: AppEnd, stderr: string): string {
  const last = stderr.trim().split("\n").at(-1) ?? "";
  const detail = last === "" ? "" : `, and wrote ${JSON.stringify(last.slice(0, 200))}`;
  switch (end.kind) {
    case "exit":
      return `it exited with code ${end.code}${detail}`;
    case "signal":
      return `it was ended by ${end.signal}${detail}`;
    case "oom":
      return "it needed more memory than its limit";
    case "lost":
      return end.reason;
  }
}

/** The first error, with its place, and how many there are. */
export function summarizeErrors(diagnostics: readonly Diagnostic[]): string {
  const errors = diagnostics.filter(({ severity }) => severity === "error");
  const [first] = errors;
  if (first === undefined) return "no error was reported";
  const more = errors.length > 1 ? ` (and ${errors.length - 1} more)` : "";
  return `${first.file}:${first.line}:${first.column}: ${first.message}${more}`;
}
