import type { Comparison } from "../benchmark.ts";
import { RunnerServer, smallItem, smallProject } from "./runner-server.ts";

/** A set-up that takes long for its work, as the installation of packages does: it writes and compiles many modules. */
const setup = [
  "mkdir -p vendor && cp -r /usr/lib/python3.*/ vendor/ && find vendor -name '*.pyc' -delete",
  "python3 -m compileall -q vendor >/dev/null; true",
];

/** A second prediction for a task whose set-up takes most of the time. */
export const second: Comparison = {
  name: "runner.second",
  title: "a second prediction for a task that is dominated by its set-up; rival: the first",
  unit: "ms",
  better: "lower",
  bar: { of: "ratio", is: "at most", value: 0.1 },
  rounds: { full: 3, quick: 1 },
  async run(lab, rounds) {
    await using runner = await RunnerServer.start(lab);
    const project = await smallProject(`${lab.dir}/project`);
    const samples = { ours: [] as number[], rival: [] as number[] };
    for (let round = 1; round <= rounds; round += 1) {
      lab.progress.report(`round ${round} of ${rounds}`);
      await lab.quiet.wait();
      // Another name of a task is the same task; another command is not.
      const item = smallItem(project, "task", { setup: [...setup, `true ${round}`] });
      samples.rival.push((await runner.resolve(item)).durationMs);
      await lab.quiet.wait();
      samples.ours.push((await runner.resolve(item)).durationMs);
    }
    return { ...samples, checks: [] };
  },
};
