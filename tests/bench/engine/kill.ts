import { takeTurns, type Benchmark } from "../benchmark.ts";
import { startIdleRival } from "../idle-pair.ts";
import { readOutput, type Lab } from "../lab.ts";
import { countLeftovers, noteTraces, type Leftovers } from "../leftovers.ts";

/** Measures from the call of `kill` until nothing is left of the sandbox. */
export const kill: Benchmark = {
  name: "engine.kill",
  title: "kill a sandbox until nothing of it is left; rival: `runsc kill` and `runsc delete`, for information",
  unit: "ms",
  better: "lower",
  bar: { of: "ours", is: "at most", value: 100 },
  rounds: { full: 30, quick: 10 },
  async run(lab, rounds) {
    const left: Leftovers = { processes: 0, cgroups: 0, mounts: 0, directories: 0 };
    const samples = await takeTurns(lab, rounds, { ours: () => killOurs(lab, left), rival: () => killRival(lab) });
    const found = Object.entries(left).map(([what, count]) => `${count} ${what}`);
    return {
      ...samples,
      checks: [{ text: `left behind: ${found.join(", ")}`, isMet: Object.values(left).every((count) => count === 0) }],
    };
  },
};

/** Kills a sandbox and adds what remains of it to `left`. */
async function killOurs(lab: Lab, left: Leftovers): Promise<number> {
  const sandbox = await lab.create();
  await readOutput(await sandbox.spawn({ argv: ["/bin/echo", "ready"], cwd: "/" }));
  const traces = await noteTraces(lab, sandbox);
  const startMs = performance.now();
  await lab.until(sandbox.kill(), "end of a sandbox");
  const tookMs = performance.now() - startMs;
  const found = await countLeftovers(traces);
  left.processes += found.processes;
  left.cgroups += found.cgroups;
  left.mounts += found.mounts;
  left.directories += found.directories;
  return tookMs;
}

async function killRival(lab: Lab): Promise<number> {
  await using bundle = await startIdleRival(lab);
  const startMs = performance.now();
  await lab.until(bundle.kill(), "end of a raw container");
  return performance.now() - startMs;
}
