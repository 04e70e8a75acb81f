import { takeTurns, type Benchmark, type Comparison } from "../benchmark.ts";
import type { Lab } from "../lab.ts";
import { OurEcho, RawEcho } from "./echo-pair.ts";
import { PhaseTally } from "./phase-tally.ts";

/** Measures until a small sandbox is on disk. */
export const pause: Benchmark = {
  name: "persist.pause",
  title: "pause a small sandbox; rival: `runsc checkpoint` of the same process",
  unit: "ms",
  better: "lower",
  bar: { of: "ratio", is: "at most", value: 2 },
  rounds: { full: 30, quick: 10 },
  run: (lab, rounds) => measure(lab, rounds, "pause"),
};

/** Measures until the process in a resumed sandbox answers. */
export const resume: Benchmark = {
  name: "persist.resume",
  title: "resume a small sandbox, to the answer of a process in it; rival: `runsc restore` to the same answer",
  unit: "ms",
  better: "lower",
  bar: { of: "ratio", is: "at most", value: 1.5 },
  rounds: { full: 30, quick: 10 },
  run: (lab, rounds) => measure(lab, rounds, "resume"),
};

/** Pauses and resumes each side once per round, and counts one of the two times. */
async function measure(lab: Lab, rounds: number, what: "pause" | "resume"): ReturnType<Comparison["run"]> {
  await using sandbox = await lab.create();
  const ours = await OurEcho.start(lab, sandbox);
  await using rival = await RawEcho.start(lab);
  const tally = new PhaseTally();
  const samples = await takeTurns(lab, rounds, {
    ours: async () => {
      const startMs = performance.now();
      const paused = await lab.engine.pause(sandbox.id);
      const pauseMs = performance.now() - startMs;
      const resumed = await ours.resume();
      if (what === "pause") tally.add(paused.phases, pauseMs, "record");
      else tally.add(resumed.phases, resumed.tookMs, "processAnswer");
      return what === "pause" ? pauseMs : resumed.tookMs;
    },
    rival: async () => {
      const times = { pause: await rival.checkpoint(), resume: await rival.restore() };
      return times[what];
    },
  });
  return { ...samples, phases: tally.last(rounds), checks: [] };
}
