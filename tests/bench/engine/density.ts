import { setTimeout as sleep } from "node:timers/promises";
import type { Benchmark } from "../benchmark.ts";
import { startIdleRival } from "../idle-pair.ts";
import { launcherPid, readOutput, type Lab } from "../lab.ts";
import { ProcessTable, pssBytes } from "../process-tree.ts";

const MiB = 1024 * 1024;
const crowd = 100;
/** Started at one time: more would only wait for each other. */
const starters = 4;
/** What a start has used and does not need any more is given back in this time. */
const settleMs = 3_000;

interface Crowd {
  /** One per sandbox. */
  mib: number[];
  processes: number;
}

/** A hundred at once, idle: what one more costs the host. */
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
    const ownGrowth = (ours.ownRss - rssBefore) / rounds / MiB;
    const rival = await crowdRival(lab, rounds);
    return {
      ours: ours.mib,
      rival: rival.mib,
      checks: [
        { text: `${ours.answered} of ${rounds} sandboxes answered while all lived`, isMet: ours.answered === rounds },
      ],
      notes: [
        `processes per sandbox: ours ${ours.processes / rounds}, rival ${rival.processes / rounds}`,
        `our own process grew by ${ownGrowth.toFixed(2)} MiB per sandbox, not counted above`,
      ],
    };
  },
};

async function crowdOurs(lab: Lab, count: number): Promise<Crowd & { answered: number; ownRss: number }> {
  const sandboxes = await startAll(lab, count, "our sandboxes started", () => lab.create());
  try {
    const answers = await startAll(lab, count, "our sandboxes answered", async (index) => {
      const sandbox = sandboxes[index];
      return (
        sandbox !== undefined && (await readOutput(await sandbox.spawn({ argv: ["/bin/echo", "ready"], cwd: "/" })))
      );
    });
    await sleep(settleMs, undefined, { signal: lab.signal });
    return {
      ...(await weigh(sandboxes.map(launcherPid))),
      answered: answers.filter((answer) => answer === "ready\n").length,
      ownRss: process.memoryUsage.rss(),
    };
  } finally {
    lab.progress.tell("removing our sandboxes");
    await startAll(
      lab,
      sandboxes.length,
      "our sandboxes removed",
      async (index) => sandboxes[index]?.kill(),
      "to the end",
    );
  }
}

async function crowdRival(lab: Lab, count: number): Promise<Crowd> {
  const bundles = await startAll(lab, count, "raw containers started", () => startIdleRival(lab));
  try {
    await sleep(settleMs, undefined, { signal: lab.signal });
    return await weigh(bundles.map(({ pid }) => pid));
  } finally {
    await startAll(
      lab,
      bundles.length,
      "raw containers removed",
      async (index) => bundles[index]?.[Symbol.asyncDispose](),
      "to the end",
    );
  }
}

async function weigh(roots: readonly number[]): Promise<Crowd> {
  const table = await ProcessTable.read();
  const families = roots.map((pid) => table.family(pid));
  const mib: number[] = [];
  for (const family of families) {
    const sizes = await Promise.all(family.map(({ pid }) => pssBytes(pid)));
    mib.push(sizes.reduce((sum, size) => sum + size, 0) / MiB);
  }
  return { mib, processes: families.flat().length };
}

/** `starters` at a time; results in order. An interrupt stops it between two, unless it has to go on to the end. */
async function startAll<T>(
  lab: Lab,
  count: number,
  what: string,
  start: (index: number) => Promise<T>,
  stop: "on interrupt" | "to the end" = "on interrupt",
): Promise<T[]> {
  const results: T[] = [];
  let next = 0;
  let done = 0;
  const work = async (): Promise<void> => {
    while (next < count) {
      if (stop === "on interrupt") lab.signal.throwIfAborted();
      const index = next++;
      results[index] = await start(index);
      lab.progress.tell(`${++done} of ${count} ${what}`);
    }
  };
  const workers = await Promise.allSettled(Array.from({ length: starters }, work));
  const failure = workers.find(({ status }) => status === "rejected");
  if (failure?.status === "rejected") throw failure.reason;
  return results;
}
