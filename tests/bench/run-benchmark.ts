import { describeBar, judge } from "./bar.ts";
import type { Benchmark, Phases } from "./benchmark.ts";
import { Lab } from "./lab.ts";
import { QuietWatch } from "./load.ts";
import type { Result } from "./report.ts";
import { summarize, type Direction, type Summary } from "./statistics.ts";
import { Workbench, type WorkbenchOptions } from "./workbench.ts";

export type RunOptions = Omit<WorkbenchOptions, "quiet">;

/** Runs one benchmark. A failure is a result, too, and the next benchmarks go on. Only an interrupt is thrown. */
export async function runBenchmark(benchmark: Benchmark, options: RunOptions): Promise<Result> {
  const { name, unit, better, bar } = benchmark;
  const { progress, signal, isQuick } = options;
  progress.start(name);
  const quiet = new QuietWatch(signal, (text) => progress.report(text));
  // A trial with the local driver checks correctness, which does not depend on other load.
  if (!("attempt" in benchmark) || options.driver === "gvisor") await quiet.wait();
  const result: Result = {
    name,
    unit,
    better,
    ours: null,
    rival: null,
    ratio: null,
    bar: describeBar(bar, unit),
    ok: false,
    n: 0,
    phases: null,
    checks: [],
    notes: [],
    error: null,
    load: quiet.load,
  };
  try {
    const measured = await measure(benchmark, { ...options, quiet }, benchmark.rounds[isQuick ? "quick" : "full"]);
    const ours = summarize(measured.ours, better);
    const rival = measured.rival === null ? null : summarize(measured.rival, better);
    const { ratio, isMet } = judge(bar, ours, rival);
    const { checks, notes = [] } = measured;
    const phases = measured.phases === undefined ? null : summarizePhases(measured.phases, better);
    const ok = isMet && checks.every((check) => check.isMet);
    Object.assign(result, { ours, rival, ratio, ok, n: measured.ours.length, phases, checks, notes });
  } catch (error) {
    progress.end();
    if (error !== signal.reason) console.error(error);
    signal.throwIfAborted();
    result.error = error instanceof Error ? error.message : String(error);
  } finally {
    progress.end();
  }
  result.load = quiet.load;
  return result;
}

function summarizePhases(phases: Phases, better: Direction): Record<string, Summary> {
  return Object.fromEntries(Object.entries(phases).map(([phase, samples]) => [phase, summarize(samples, better)]));
}

/** Gives each benchmark a new workbench, so that it finds nothing in memory or on disk of an earlier one. */
async function measure(benchmark: Benchmark, options: WorkbenchOptions, rounds: number) {
  if ("attempt" in benchmark) {
    await using bench = await Workbench.make(options);
    return { ...(await benchmark.attempt(bench, rounds)), rival: null };
  }
  await using lab = await Lab.open(options);
  return await benchmark.run(lab, rounds);
}
