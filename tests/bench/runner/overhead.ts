import { Sandbox } from "@atoll/sdk";
import { takeTurns, type Comparison } from "../benchmark.ts";
import { percentile } from "../statistics.ts";
import { RunnerServer, smallItem, smallProject, testCommand, testTimeOf } from "./runner-server.ts";

const longestMs = 1_000;

/** What the runner adds to a test command whose task is set up already. */
export const overhead: Comparison = {
  name: "runner.overhead",
  title: "all stages around the test command, of a task that is set up; rival: the same steps by hand with the SDK",
  unit: "ms",
  better: "lower",
  bar: { of: "ratio", is: "at most", value: 1.3 },
  rounds: { full: 20, quick: 5 },
  async run(lab, rounds) {
    await using runner = await RunnerServer.start(lab);
    const project = await smallProject(`${lab.dir}/project`);
    const item = smallItem(project, "task");
    await runner.resolve(item);
    const snapshots = await runner.atoll.snapshots.list();
    const task = snapshots.find(({ name }) => name.startsWith("task-"));
    if (task === undefined) throw new Error("The runner has made no snapshot of the task");
    const samples = await takeTurns(lab, rounds, {
      ours: async () => {
        const report = await runner.resolve(item);
        return report.durationMs - testTimeOf(report);
      },
      rival: () => byHand(runner, task.name, project),
    });
    const p50 = percentile(samples.ours, 0.5);
    const check = { text: `p50 is ${Math.round(p50)} ms, at most ${longestMs}`, isMet: p50 <= longestMs };
    return { ...samples, checks: [check] };
  },
};

/** Runs the steps without the runner: creates a sandbox, applies both patches, runs the tests, removes the sandbox. */
async function byHand(
  { atoll: client }: RunnerServer,
  snapshot: string,
  { patch, tests }: { patch: string; tests: string },
): Promise<number> {
  const startMs = performance.now();
  const sandbox = await Sandbox.create({ client, snapshot });
  const run = async (argv: readonly string[], check = true) => sandbox.commands.run(argv, { cwd: "/testbed", check });
  await sandbox.files.writeFiles({ "/tmp/fix.diff": patch, "/tmp/tests.diff": tests });
  await run(["git", "apply", "/tmp/fix.diff"]);
  await run(["git", "apply", "/tmp/tests.diff"]);
  const testMs = performance.now();
  const { exitCode, stderr } = await run(testCommand, false);
  const testTookMs = performance.now() - testMs;
  if (exitCode !== 0) throw new Error(`The tests failed: ${stderr}`);
  await sandbox.kill();
  return performance.now() - startMs - testTookMs;
}
