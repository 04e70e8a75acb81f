import type { RunItem } from "@atoll/runner";
import { takeTurns, type Comparison } from "../benchmark.ts";
import type { Lab } from "../lab.ts";
import { RunnerServer, smallItem, smallProject } from "./runner-server.ts";

const tasks = 20;

/** Many small tasks at the same time, against the loop that people write. */
export const parallel: Comparison = {
  name: "runner.parallel",
  title: `${tasks} small tasks with two jobs; rival: a loop over \`runsc run\`, each with checkout, patch and tests`,
  unit: "ms",
  better: "lower",
  bar: { of: "ratio", is: "at most", value: 1 },
  rounds: { full: 3, quick: 1 },
  async run(lab, rounds) {
    await using runner = await RunnerServer.start(lab);
    const project = await smallProject(`${lab.dir}/project`);
    const items = Array.from({ length: tasks }, (_, at): RunItem => smallItem(project, `task-${at}`));
    const samples = await takeTurns(lab, rounds, {
      ours: async () => {
        const startMs = performance.now();
        const { counts } = await runner.run(items, { jobs: 2 });
        if (counts.resolved !== tasks) throw new Error(`${counts.resolved} of ${tasks} tasks are resolved`);
        return performance.now() - startMs;
      },
      rival: () => loop(lab, project),
    });
    return { ...samples, checks: [] };
  },
};

/** Each container clones the repository, applies both patches and runs the tests, one container after the other. */
async function loop(lab: Lab, { patch, tests }: { patch: string; tests: string }) {
  const heredoc = (text: string): string => `git apply <<'END_OF_PATCH'\n${text}END_OF_PATCH\n`;
  const lines = [
    "set -e; export HOME=/tmp; cd /tmp; mkdir task; cd task; git init -q",
    "cat >calc.py <<'END_OF_FILE'\ndef add(a, b):\n    return a - b\nEND_OF_FILE",
    "printf 'import unittest\\n' >test_calc.py; git add -A; git -c user.name=a -c user.email=a@b commit -qm x",
    heredoc(patch) + heredoc(tests) + "python3 -m unittest -v test_calc 2>&1",
  ];
  const startMs = performance.now();
  for (let at = 0; at < tasks; at += 1) {
    await using bundle = await lab.rival.prepare(["/bin/bash", "-c", lines.join("\n")]);
    const output = bundle.start();
    let text = "";
    for await (const data of output) text += String(data);
    await bundle.exited();
    if (!text.includes("OK")) throw new Error(`The rival's tests failed: ${text}`);
  }
  return performance.now() - startMs;
}
