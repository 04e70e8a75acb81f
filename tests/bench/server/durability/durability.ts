import { cp, mkdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Trial } from "../../benchmark.ts";
import type { Workbench } from "../../workbench.ts";
import { ServerProcess } from "../server-process.ts";
import { CuttingProxy } from "./cutting-proxy.ts";
import { planRound, type Plan } from "./plan.ts";
import { playRound, type Problem, type RoundReport } from "./round.ts";

/** After this number of rounds with problems, more rounds would only repeat them. */
const mostBadRounds = 5;

/** Clients, servers and connections die in the middle of work, and none of the work may be lost. */
export const durability: Trial = {
  name: "server.durability",
  title: "work while the client, the server (SIGKILL) or the connection dies; time of one round",
  unit: "ms",
  better: "lower",
  bar: { of: "checks", text: "0 lost, doubled, wrong, leaked" },
  rounds: { full: 200, quick: 20 },
  async attempt(bench, rounds) {
    await using server = await ServerProcess.start({ dir: `${bench.dir}/server` });
    await using proxy = await CuttingProxy.open(server.port);
    const ours: number[] = [];
    const bad: { plan: Plan; problems: Problem[] }[] = [];
    const kept: string[] = [];
    let undisturbed = 0;
    for (let round = 0; round < rounds && bad.length < mostBadRounds; round += 1) {
      bench.signal.throwIfAborted();
      // The seed decides a round completely: the first round of another run with that seed is the same.
      const plan = planRound(bench.seed + round);
      bench.progress.report(
        `round ${round + 1} of ${rounds}: ${plan.victim} dies during ${plan.work}, seed ${plan.seed}`,
      );
      const startMs = performance.now();
      const { problems, isUndisturbed } = await playRound(
        {
          server,
          proxy,
          driver: bench.driver,
          signal: bench.signal,
          onProblem: async (report) => {
            kept.push(await keepEvidence(bench, server, plan, report));
          },
        },
        plan,
      );
      ours.push(performance.now() - startMs);
      if (isUndisturbed) undisturbed += 1;
      if (problems.length > 0) bad.push({ plan, problems });
    }
    const count = (kind: Problem["kind"]): number =>
      bad.flatMap(({ problems }) => problems).filter((problem) => problem.kind === kind).length;
    return {
      ours,
      checks: [
        { text: `${ours.length} of ${rounds} rounds were run`, isMet: ours.length === rounds },
        { text: `bytes lost or doubled in ${count("bytes")} places`, isMet: count("bytes") === 0 },
        { text: `${count("exit code")} wrong exit codes`, isMet: count("exit code") === 0 },
        { text: `${count("leak")} leaks`, isMet: count("leak") === 0 },
        { text: `${count("error")} calls that failed`, isMet: count("error") === 0 },
      ],
      notes: [
        `seed ${bench.seed}, ${bench.driver}; in ${undisturbed} rounds the work ended before the failure`,
        ...bad.map(({ plan, problems }) => `--seed ${plan.seed} begins with ${describe(plan)}: ${list(problems)}`),
        ...kept.map((directory) => `the state of the server is in ${directory}`),
      ],
    };
  },
};

/** Copies the server's log and what the server stored about the sandbox, before the sandbox is removed. */
async function keepEvidence(
  { driver }: Workbench,
  { dataDir, logFile }: ServerProcess,
  plan: Plan,
  report: RoundReport,
): Promise<string> {
  const directory = join(tmpdir(), `atoll-durability-${plan.seed}`);
  await mkdir(directory, { recursive: true });
  await writeFile(join(directory, "round.json"), JSON.stringify({ plan, driver, ...report }, null, 2));
  await cp(logFile, join(directory, "server.log"), { force: true });
  const owned = join(dataDir, "sandboxes", report.sandboxId, "owner");
  await cp(owned, join(directory, "owner"), { recursive: true, force: true });
  return directory;
}

function describe({ victim, work, bytes }: Plan): string {
  return `the death of the ${victim} during ${work} of ${bytes} bytes`;
}

function list(problems: readonly Problem[]): string {
  return problems.map(({ kind, text }) => `${kind}: ${text.split("\n")[0]}`).join("; ");
}
