import { setTimeout as sleep } from "node:timers/promises";
import type { Sandbox } from "@atoll/engine";
import type { Benchmark } from "../benchmark.ts";
import { startIdleRival } from "../idle-pair.ts";
import { launcherPid, readOutput, type Lab } from "../lab.ts";
import { ProcessTable, pssBytes } from "../process-tree.ts";

const MiB = 1024 * 1024;
const crowd = 100;
/** The number of sandboxes that start at one time: more would only wait for each other. */
const atOnce = 4;
/**
 * Within this time a sandbox releases the memory that only its start needed. Processor time in it is spent by idle
 * sandboxes.
 */
const idleMs = 5_000;
const ticksPerSecond = 100;

interface Crowd {
  /** The memory of each sandbox. */
  mib: number[];
  processes: number;
  /** The share of one core that an idle sandbox takes. */
  idleShare: number;
}

/** Measures the cost of one more sandbox for the host, among a hundred idle ones. */
export const density: Benchmark = {
  name: "engine.density",
  title: `memory of one sandbox among ${crowd} that are idle at once; rival: raw runsc containers`,
  unit: "MiB",
  better: "lower",
  bar: { of: "ratio", is: "at most", value: 1.3 },
  rounds: { full: crowd, quick: crowd },
  async run(lab, rounds) {
    const rssBefore = process.memoryUsage.rss();
    const ours = await crowdOurs(lab, rounds);
    const rival = await crowdRival(lab, rounds);
    const ownMib = (ours.ownRss - rssBefore) / rounds / MiB;
    return {
      ours: ours.mib,
      rival: rival.mib,
      checks: [
        { text: `${ours.answered} of ${rounds} started and answered while all lived`, isMet: ours.answered === rounds },
      ],
      notes: [
        `processes of each: ours ${perOne(ours.processes, rounds)}, rival ${perOne(rival.processes, rounds)}`,
        `processor time of each while idle: ours ${percent(ours.idleShare)}, ` +
          `rival ${percent(rival.idleShare)} of a core`,
        `our own process grew by ${ownMib.toFixed(2)} MiB for each, not counted above`,
        ...ours.failures,
      ],
    };
  },
};

async function crowdOurs(
  lab: Lab,
  count: number,
): Promise<Crowd & { answered: number; ownRss: number; failures: string[] }> {
  const failures = new Set<string>();
  const attempt = <T>(work: Promise<T>): Promise<T | undefined> =>
    work.catch((error: unknown) => {
      lab.signal.throwIfAborted();
      failures.add(error instanceof Error ? error.message : String(error));
      return undefined;
    });
  const started = await inTurns(lab, count, "our sandboxes started", () => attempt(lab.create()));
  const sandboxes = started.filter((sandbox) => sandbox !== undefined);
  const answers = await inTurns(lab, sandboxes.length, "our sandboxes answered", (index) =>
    attempt(ask(sandboxes[index])),
  );
  const weight = await weigh(lab, sandboxes.map(launcherPid));
  const answered = answers.filter((answer) => answer === "ready\n").length;
  const ownRss = process.memoryUsage.rss();
  await inTurns(lab, sandboxes.length, "our sandboxes removed", async (index) => sandboxes[index]?.kill());
  return { ...weight, answered, ownRss, failures: [...failures] };
}

async function ask(sandbox: Sandbox | undefined): Promise<string> {
  return sandbox === undefined ? "" : readOutput(await sandbox.spawn({ argv: ["/bin/echo", "ready"], cwd: "/" }));
}

async function crowdRival(lab: Lab, count: number): Promise<Crowd> {
  const bundles = await inTurns(lab, count, "raw containers started", () => startIdleRival(lab));
  const weight = await weigh(
    lab,
    bundles.map(({ pid }) => pid),
  );
  await inTurns(lab, count, "raw containers removed", async (index) => bundles[index]?.[Symbol.asyncDispose]());
  return weight;
}

/** Measures the memory of each root process with all its descendants. */
async function weigh(lab: Lab, roots: readonly number[]): Promise<Crowd> {
  const before = await ProcessTable.read();
  await sleep(idleMs, undefined, { signal: lab.signal });
  const table = await ProcessTable.read();
  const ticks = (at: ProcessTable): number =>
    roots.flatMap((pid) => at.family(pid)).reduce((sum, { cpuTicks }) => sum + cpuTicks, 0);
  const mib: number[] = [];
  for (const root of roots) {
    const sizes = await Promise.all(table.family(root).map(({ pid }) => pssBytes(pid)));
    mib.push(sizes.reduce((sum, size) => sum + size, 0) / MiB);
  }
  return {
    mib,
    processes: roots.flatMap((pid) => table.family(pid)).length,
    idleShare: (ticks(table) - ticks(before)) / ticksPerSecond / (idleMs / 1000) / roots.length,
  };
}

/**
 * Runs work for `count` indices, a few at a time, and returns the results in order. After a failure or an interrupt no
 * more work starts, and the lab removes what is left.
 */
async function inTurns<T>(lab: Lab, count: number, what: string, work: (index: number) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  const failures: unknown[] = [];
  let next = 0;
  let done = 0;
  const takeTurn = async (): Promise<void> => {
    while (next < count && failures.length === 0 && !lab.signal.aborted) {
      const index = next++;
      try {
        results[index] = await work(index);
      } catch (error) {
        failures.push(error);
      }
      lab.progress.report(`${++done} of ${count} ${what}`);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, takeTurn));
  lab.signal.throwIfAborted();
  if (failures.length > 0) throw failures[0];
  return results;
}

function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}

function perOne(total: number, count: number): string {
  return (total / count).toFixed(1);
}
