import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { hasErrno } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import { readJournal } from "../journal/journal.ts";
import { foldEvents } from "../journal/run-state.ts";
import { type InstanceReport, RunReport, Verdict } from "../models/report.ts";
import { version } from "../version.ts";

/** An item of a run with its report. The label is the name of its folder under `logs/`. */
export interface StoredItem {
  label: string;
  report: InstanceReport;
}

/** What is known of a run, whether it has ended or not. */
export interface StoredRun {
  directory: string;
  report: RunReport;
  items: readonly StoredItem[];
  /** Labels of items that have no report yet. */
  unfinished: readonly string[];
}

/** Reads a run from its journal. The run may still be going on, or have been killed at any moment. */
export async function readRun(directory: string): Promise<StoredRun> {
  const events = await readJournal(join(directory, "events.ndjson"));
  if (events.length === 0) {
    throw new SandboxError("not_found", `Cannot read ${directory}: it has no events.ndjson, or an empty one`, {
      suggestion: "Give the directory of a run, which `atoll task run` and `atoll swe run` name when they end.",
    });
  }
  const state = foldEvents(events);
  const starts = events.flatMap((event) => (event.type === "run.start" ? [event] : []));
  const labels = starts.at(-1)?.instances ?? [...state.items.keys()];
  const items = labels.flatMap((label): StoredItem[] => {
    const report = state.items.get(label)?.report;
    return report === undefined ? [] : [{ label, report }];
  });
  const written = await readWritten(directory);
  const firstMs = Date.parse(starts[0]?.at ?? state.startedAt);
  const lastMs = Date.parse(events.at(-1)?.at ?? state.startedAt);
  const reports = items.map(({ report }) => report);
  return {
    directory,
    items,
    unfinished: labels.filter((label) => state.items.get(label)?.report === undefined),
    report: {
      schemaVersion: 1,
      runId: state.runId,
      tool: { name: "atoll", version: written?.tool.version ?? version },
      client: written?.client ?? "unknown",
      startedAt: new Date(firstMs).toISOString(),
      durationMs: written?.durationMs ?? Math.max(0, lastMs - firstMs),
      interrupted: state.ended ? state.interrupted : true,
      counts: countVerdicts(reports),
      instances: reports,
    },
  };
}

/** The report that a run writes when it ends has what no event says. */
async function readWritten(directory: string): Promise<RunReport | undefined> {
  try {
    return RunReport.safeParse(JSON.parse(await readFile(join(directory, "run_report.json"), "utf8"))).data;
  } catch (error) {
    if (hasErrno(error, "ENOENT") || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

export function countVerdicts(reports: readonly InstanceReport[]): RunReport["counts"] {
  const counts = Object.fromEntries(Verdict.options.map((verdict) => [verdict, 0])) as RunReport["counts"];
  for (const { verdict } of reports) counts[verdict] += 1;
  return counts;
}
