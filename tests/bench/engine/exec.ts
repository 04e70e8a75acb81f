import type { Sandbox } from "@atoll/engine";
import { takeSeries, takeTurns, type Benchmark, type Comparison } from "../benchmark.ts";
import { withIdlePair } from "../idle-pair.ts";
import type { Lab } from "../lab.ts";
import type { RawBundle } from "../raw-runsc.ts";

const argv = ["/bin/true"];
const concurrency = 16;

/** Runs one process at a time in an existing sandbox. */
export const exec: Benchmark = {
  name: "engine.exec",
  title: "run /bin/true in a sandbox, start to exit code; rival: `runsc exec`",
  unit: "ms",
  better: "lower",
  bar: { of: "ratio", is: "at most", value: 0.35 },
  rounds: { full: 100, quick: 10 },
  run: (lab, rounds) => measure(lab, rounds, 1),
};

/** Runs many processes at once, until the last has ended. */
export const execConcurrent: Benchmark = {
  name: "engine.exec_concurrent",
  title: `run ${concurrency} times /bin/true at once in one sandbox, until all have exited; rival: \`runsc exec\``,
  unit: "ms",
  better: "lower",
  bar: { of: "ratio", is: "at most", value: 0.4 },
  rounds: { full: 30, quick: 10 },
  run: (lab, rounds) => measure(lab, rounds, concurrency),
};

function measure(lab: Lab, rounds: number, count: number): ReturnType<Comparison["run"]> {
  return takeSeries(rounds, (part) =>
    withIdlePair(lab, ({ sandbox, bundle }) =>
      takeTurns(lab, part, {
        ours: () => timeAll(lab, count, () => execOurs(sandbox)),
        rival: () => timeAll(lab, count, () => execRival(lab, bundle)),
      }),
    ),
  ).then((samples) => ({ ...samples, checks: [] }));
}

async function timeAll(lab: Lab, count: number, runOne: () => Promise<void>): Promise<number> {
  const startMs = performance.now();
  await lab.until(Promise.all(Array.from({ length: count }, runOne)), "end of /bin/true");
  return performance.now() - startMs;
}

async function execOurs(sandbox: Sandbox): Promise<void> {
  const process = await sandbox.spawn({ argv, cwd: "/" });
  process.discardOutput();
  const { exitCode } = await process.wait();
  if (exitCode !== 0) throw new Error(`/bin/true ended with ${exitCode}`);
}

function execRival(lab: Lab, bundle: RawBundle): Promise<void> {
  return bundle.exec(argv, lab.rival.user);
}
