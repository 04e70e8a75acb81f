import type { CommandEnd } from "../../src/models/command.ts";
import type { AttemptResult, TestStatus } from "../../src/models/report.ts";

const output = { path: "logs/out", bytes: 0, dropped: 0, sha256: "", head: "", tail: "" };

/** A command of a report that ended like this. */
const commandThatEnded = (end: CommandEnd): NonNullable<AttemptResult["command"]> => ({
  argv: ["pytest", "-rA"],
  cwd: "/testbed",
  env: {},
  user: "user",
  startedAt: "2026-01-02T03:04:05.000Z",
  durationMs: 1200,
  end,
  stdout: output,
  stderr: output,
});

export const exit = (code: number): CommandEnd => ({ kind: "exit", code });

/** A test run with these results. It ends as an honest runner does: with 1 when a test failed. */
export function attempt(
  kind: AttemptResult["kind"],
  tests: Record<string, TestStatus>,
  changes: Partial<Omit<AttemptResult, "command">> & { end?: CommandEnd } = {},
): AttemptResult {
  const { end, ...rest } = changes;
  const failed = changes.canary === "failed" || Object.values(tests).some((status) => status === "failed");
  return {
    kind,
    seed: null,
    command: commandThatEnded(end ?? exit(failed ? 1 : 0)),
    parser: "pytest",
    tests,
    suiteRan: true,
    canary: "off",
    ...rest,
  };
}
