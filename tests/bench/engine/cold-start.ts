import { once } from "node:events";
import { takeTurns, type Benchmark } from "../benchmark.ts";
import type { Lab } from "../lab.ts";

const argv = ["/bin/echo", "hi"];
const greeting = "hi\n";

/** From the wish for a sandbox to the first byte of a program in it. */
export const coldStart: Benchmark = {
  name: "engine.cold_start",
  title: "create a sandbox, to the first byte of its first process; rival: `runsc run` of that process",
  unit: "ms",
  better: "lower",
  bar: { of: "ratio", is: "at most", value: 1.25 },
  rounds: { full: 30, quick: 10 },
  async run(lab, rounds) {
    const samples = await takeTurns(lab, rounds, { ours: () => startOurs(lab), rival: () => startRival(lab) });
    return { ...samples, checks: [] };
  },
};

async function startOurs(lab: Lab): Promise<number> {
  const startMs = performance.now();
  await using sandbox = await lab.create();
  const process = await sandbox.spawn({ argv, cwd: "/" });
  for await (const { data } of process) {
    const tookMs = performance.now() - startMs;
    assertGreeting(data);
    await process.wait();
    return tookMs;
  }
  throw new Error("The first process in a sandbox of ours said nothing");
}

async function startRival(lab: Lab): Promise<number> {
  await using bundle = await lab.rival.prepare(argv);
  const startMs = performance.now();
  const stdout = bundle.start();
  const [data] = (await lab.until(once(stdout, "data"), "first byte of runsc run")) as [Buffer];
  const tookMs = performance.now() - startMs;
  assertGreeting(data);
  await bundle.exited();
  stdout.destroy();
  return tookMs;
}

function assertGreeting(data: Buffer): void {
  if (data.toString() !== greeting)
    throw new Error(`A process that should say hi said ${JSON.stringify(data.toString())}`);
}
