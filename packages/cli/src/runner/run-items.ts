import { join, resolve } from "node:path";
import type { RunItem, RunReport, Verdict } from "@atoll/runner";
import type { Cli } from "../cli.ts";
import { exitCodes } from "../exit-code.ts";
import { Interruption } from "../interruption.ts";
import { formatDuration } from "../output/amount.ts";
import { openClient } from "./open-client.ts";
import { openRunView } from "./run-view.ts";
import { assertRunId, newRunId, runChoices, type ClientName, type RunnerOptions } from "./runner-options.ts";

export interface RunRequest {
  items: readonly RunItem[];
  options: RunnerOptions;
  client: ClientName;
  /** The verdict that every instance should have; `undefined` where any verdict is a result. */
  expected: Verdict | undefined;
}

/** Runs items, shows how far they are, prints the verdicts and sets the exit code. */
export async function runItems(cli: Cli, { items, options, client: name, expected }: RunRequest): Promise<void> {
  cli.failureExitCode = exitCodes.infrastructure;
  const runId = assertRunId(options.runId ?? newRunId());
  const directory = resolve(options.out ?? join("atoll-runs", runId));
  const { readQuarantine, readRun, runInstances, writeReports } = await import("@atoll/runner");
  const quarantine = (await Promise.all((options.quarantine ?? []).map(readQuarantine))).flat();
  await using opened = await openClient(cli, name);
  using stops = new Stops(cli);
  const report = await show(cli, options.jobs ?? 1, (onEvent) =>
    runInstances({
      runId,
      directory,
      items,
      quarantine,
      onEvent,
      client: opened.client,
      cacheDirectory: join(cli.environment.cacheDirectory, "runner"),
      drain: stops.drain,
      signal: stops.now,
      ...runChoices(options),
    }),
  );
  const paths = await writeReports(await readRun(directory), options.format ?? ["html"]);
  await printReport(cli, report, { directory, paths });
  cli.exitCode = stops.name === undefined ? exitCodeOfReport(report, expected) : new Interruption(stops.name).exitCode;
}

async function show(
  cli: Cli,
  jobs: number,
  run: (onEvent: (event: Parameters<ReturnType<typeof openRunView>["take"]>[0]) => void) => Promise<RunReport>,
): Promise<RunReport> {
  using view = openRunView(cli, jobs);
  return await run((event) => view.take(event));
}

/** The first Ctrl-C lets finish what runs, the second ends and removes everything, the third ends this program. */
class Stops implements Disposable {
  readonly #drain = new AbortController();
  readonly #now = new AbortController();
  readonly #release: () => void;
  /** The signal that came first. */
  name: "SIGINT" | "SIGTERM" | undefined;

  constructor(cli: Cli) {
    this.#release = cli.takeSignals((name) => {
      this.name ??= name;
      if (!this.#drain.signal.aborted) {
        this.#drain.abort();
        cli.note("What runs is finished, and nothing new is started. Again: end everything now.");
      } else if (!this.#now.signal.aborted) this.#now.abort(new Error(`Interrupted by ${name}`));
      else process.exit(new Interruption(name).exitCode);
    });
    cli.signal.addEventListener("abort", () => this.#now.abort(cli.signal.reason), { once: true });
  }

  get drain(): AbortSignal {
    return this.#drain.signal;
  }

  get now(): AbortSignal {
    return this.#now.signal;
  }

  [Symbol.dispose](): void {
    this.#release();
  }
}

/** 0: as expected; 1: a verdict differs; 3: something of ours failed, so that nothing is known. */
function exitCodeOfReport(report: RunReport, expected: Verdict | undefined): number {
  const verdicts = report.instances.map(({ verdict }) => verdict);
  if (report.interrupted || verdicts.includes("infra_error")) return exitCodes.infrastructure;
  const differs = expected !== undefined && verdicts.some((verdict) => verdict !== expected);
  return differs ? exitCodes.failure : exitCodes.ok;
}

async function printReport(
  cli: Cli,
  report: RunReport,
  { directory, paths }: { directory: string; paths: readonly string[] },
): Promise<void> {
  if (cli.isJson) {
    const { runId, counts, interrupted, durationMs } = report;
    await cli.printJson({ type: "report", runId, directory, paths, counts, interrupted, durationMs });
    return;
  }
  const counts = Object.entries(report.counts).filter(([, count]) => count > 0);
  const text = counts.map(([verdict, count]) => `${count} ${verdict}`).join(", ") || "nothing was run";
  cli.note(`${text} in ${formatDuration(report.durationMs)}; the report is ${paths[0] ?? directory}`);
}
