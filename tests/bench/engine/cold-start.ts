import { takeTurns, type Benchmark } from "../benchmark.ts";
import { assertGreeting, greeter, timeRawFirstByte } from "../first-byte.ts";
import type { Lab } from "../lab.ts";

/** Measures from the call of `create` to the first byte of a program in the sandbox. */
export const coldStart: Benchmark = {
  name: "engine.cold_start",
  title: "create a sandbox, to the first byte of its first process; rival: `runsc run` of that process",
  unit: "ms",
  better: "lower",
  bar: { of: "ratio", is: "at most", value: 1.25 },
  rounds: { full: 30, quick: 10 },
  async run(lab, rounds) {
    const samples = await takeTurns(lab, rounds, { ours: () => startOurs(lab), rival: () => timeRawFirstByte(lab) });
    return { ...samples, checks: [] };
  },
};

async function startOurs(lab: Lab): Promise<number> {
  const startMs = performance.now();
  await using sandbox = await lab.create();
  const process = await sandbox.spawn({ argv: [...greeter.argv], cwd: "/" });
  for await (const { data } of process) {
    const tookMs = performance.now() - startMs;
    assertGreeting(data.toString());
    await process.wait();
    return tookMs;
  }
  throw new Error("The first process in a sandbox of ours printed nothing");
}
