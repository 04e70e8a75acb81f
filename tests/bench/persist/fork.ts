import { takeTurns, type Benchmark } from "../benchmark.ts";
import { OurEcho } from "./echo-pair.ts";
import { PhaseTally } from "./phase-tally.ts";

const copies = 10;

/** Compares one fork into ten sandboxes with ten resumes, one after the other. */
export const fork: Benchmark = {
  name: "persist.fork",
  title: `fork a running sandbox into ${copies} more; rival: ${copies} of our own resumes in sequence`,
  unit: "ms",
  better: "lower",
  bar: { of: "ratio", is: "at most", value: 0.6 },
  rounds: { full: 30, quick: 10 },
  async run(lab, rounds) {
    await using sandbox = await lab.create();
    const parent = await OurEcho.start(lab, sandbox);
    const tally = new PhaseTally();
    const saved: (typeof sandbox.id)[] = [];
    const samples = await takeTurns(lab, rounds, {
      ours: async () => {
        const startMs = performance.now();
        const { sandboxes, phases } = await lab.engine.fork(sandbox.id, { count: copies });
        const tookMs = performance.now() - startMs;
        tally.add(phases, tookMs, "record");
        await parent.ask();
        for (const { id } of sandboxes) await lab.engine.pause(id);
        saved.push(...sandboxes.map(({ id }) => id));
        return tookMs;
      },
      rival: async () => {
        let tookMs = 0;
        for (const id of saved) tookMs += (await lab.engine.resume(id)).totalMs;
        for (const id of saved.splice(0)) await lab.engine.kill(id);
        return tookMs;
      },
    });
    return { ...samples, phases: tally.last(rounds), checks: [] };
  },
};
