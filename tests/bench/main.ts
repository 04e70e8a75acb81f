import { randomInt } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { helpText, parseArguments, UsageError, type Arguments } from "./arguments.ts";
import type { Benchmark } from "./benchmark.ts";
import { coldStart } from "./engine/cold-start.ts";
import { densityIdle } from "./engine/density-idle.ts";
import { density } from "./engine/density.ts";
import { exec, execConcurrent } from "./engine/exec.ts";
import { idle } from "./engine/idle.ts";
import { kill } from "./engine/kill.ts";
import { throughput } from "./engine/throughput.ts";
import { audit as guardAudit } from "./guard/audit.ts";
import { monitor as guardMonitor } from "./guard/monitor.ts";
import { policy } from "./guard/policy.ts";
import { scan } from "./guard/scan.ts";
import { compile as liveCompile } from "./live/compile.ts";
import { load as liveLoad } from "./live/load.ts";
import { memory as liveMemory } from "./live/memory.ts";
import { neighbours, watch } from "./live/neighbours.ts";
import { swap } from "./live/swap.ts";
import { readCommit, readMachine } from "./machine.ts";
import { fork } from "./persist/fork.ts";
import { handovers } from "./persist/handover.ts";
import { layers } from "./persist/layers.ts";
import { pause, resume } from "./persist/pause-resume.ts";
import { soak } from "./persist/soak/soak.ts";
import { Progress } from "./progress.ts";
import { formatReport, type Report } from "./report.ts";
import { runBenchmark } from "./run-benchmark.ts";
import { memory } from "./runner/memory.ts";
import { overhead } from "./runner/overhead.ts";
import { parallel } from "./runner/parallel.ts";
import { real } from "./runner/real.ts";
import { second } from "./runner/second.ts";
import { exec as sdkExec } from "./sdk/exec.ts";
import { firstOutputCold, firstOutputPooled } from "./sdk/first-output.ts";
import { burst } from "./server/burst.ts";
import { durability } from "./server/durability/durability.ts";
import { streams } from "./server/streams.ts";

const benchmarks: readonly Benchmark[] = [
  coldStart,
  exec,
  execConcurrent,
  throughput,
  density,
  idle,
  densityIdle,
  kill,
  firstOutputPooled,
  firstOutputCold,
  sdkExec,
  burst,
  durability,
  streams,
  pause,
  resume,
  layers,
  fork,
  ...handovers,
  second,
  overhead,
  parallel,
  memory,
  real,
  swap,
  liveLoad,
  liveMemory,
  neighbours,
  liveCompile,
  watch,
  scan,
  guardAudit,
  guardMonitor,
  policy,
  soak,
];

const exitCodes = { missed: 1, failed: 1, usage: 2, interrupted: 130 } as const;
const interrupted = new AbortController();

async function main(): Promise<void> {
  const names = benchmarks.map(({ name }) => name);
  const options = parseArguments(process.argv.slice(2), names);
  if (options.wantsHelp) {
    console.log(helpText(benchmarks));
    return;
  }
  const report = await runAll(options, listenForInterrupt());
  console.log(formatReport(report));
  if (options.jsonFile !== undefined) await writeFile(options.jsonFile, `${JSON.stringify(report, null, 2)}\n`);
  if (report.results.some(({ ok }) => !ok)) process.exitCode = exitCodes.missed;
}

async function runAll(
  { only, isQuick, driver, seed = randomInt(1e9) }: Arguments,
  signal: AbortSignal,
): Promise<Report> {
  const progress = new Progress();
  const [machine, commit] = await Promise.all([readMachine(), readCommit()]);
  const report: Report = { machine, commit, startedAt: new Date().toISOString(), isQuick, results: [] };
  for (const benchmark of benchmarks.filter(({ name }) => name.startsWith(only))) {
    report.results.push(await runBenchmark(benchmark, { isQuick, progress, signal, driver, seed }));
  }
  return report;
}

/** The first interrupt ends the measurement and cleans up; a second one ends the program without cleaning up. */
function listenForInterrupt(): AbortSignal {
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(name, () => {
      if (interrupted.signal.aborted) process.exit(exitCodes.interrupted);
      console.error("\nInterrupted: cleaning up. Press Ctrl-C again to exit at once.");
      interrupted.abort(new Error("The benchmark was interrupted"));
    });
  }
  return interrupted.signal;
}

function whyEnded(error: unknown): keyof typeof exitCodes {
  if (interrupted.signal.aborted) return "interrupted";
  return error instanceof UsageError ? "usage" : "failed";
}

try {
  await main();
} catch (error) {
  console.error(`bench: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = exitCodes[whyEnded(error)];
}
