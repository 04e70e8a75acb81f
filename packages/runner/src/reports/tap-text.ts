import { plain } from "./plain-text.ts";
import type { StoredRun } from "./stored-run.ts";
import { testRows } from "./test-rows.ts";

/** In a description, `#` begins a directive, and a line ends it. */
const describe = (text: string): string =>
  plain(text)
    .replaceAll(/[\r\n\t]+/g, " ")
    .replaceAll("\\", "\\\\")
    .replaceAll("#", "\\#");

/** TAP 14: one test point per instance. The diagnostics are JSON, which is YAML too. */
export function renderTap({ report, unfinished }: StoredRun): string {
  const points = report.instances.map((instance, index) => {
    const failing = testRows(instance).filter(({ good }) => !good);
    const name = describe(instance.model === "" ? instance.id : `${instance.id} (${instance.model})`);
    const diagnostics = {
      verdict: instance.verdict,
      message: instance.reason,
      duration_ms: Math.round(instance.durationMs),
      ...(failing.length === 0 ? {} : { failing: failing.map(({ id }) => id) }),
    };
    const lines = Object.entries(diagnostics).map(([key, value]) => `  ${key}: ${plain(JSON.stringify(value))}`);
    const outcome = instance.verdict === "resolved" ? "ok" : "not ok";
    return [`${outcome} ${index + 1} - ${name}`, "  ---", ...lines, "  ..."].join("\n");
  });
  const missing = unfinished.map((label, index) => `not ok ${points.length + index + 1} - ${describe(label)}`);
  return ["TAP version 14", `1..${points.length + missing.length}`, ...points, ...missing, ""].join("\n");
}
