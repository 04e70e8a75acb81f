import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { readDataSet, type Instance, type InstanceReport, type RunItem } from "@atoll/runner";
import type { Check, Trial } from "../benchmark.ts";
import { RunnerServer } from "./runner-server.ts";

/** Instances of a public data set, and clones of their repositories. Neither is a part of this repository. */
const instancesDir =
  process.env["ATOLL_SWE_INSTANCES"] ?? fileURLToPath(new URL("../../../../shared/swe-instances", import.meta.url));
const reposDir = process.env["ATOLL_SWE_REPOS"];

const wrongPatch = [
  "diff --git a/not-a-fix.txt b/not-a-fix.txt",
  "new file mode 100644",
  "--- /dev/null",
  "+++ b/not-a-fix.txt",
  "@@ -0,0 +1 @@",
  "+nothing",
  "",
].join("\n");

/** The reference patch, no patch, and one that changes nothing that matters. */
const predictions = [
  { model: "gold", patchOf: ({ goldPatch }: Instance) => goldPatch, verdict: "resolved" },
  { model: "empty", patchOf: () => "", verdict: "empty_patch" },
  { model: "wrong", patchOf: () => wrongPatch, verdict: "unresolved" },
] as const;

export const real: Trial = {
  name: "runner.real",
  title: "instances of a public data set in gVisor, each with its fix, an empty and a wrong patch; time of the fix",
  unit: "ms",
  better: "lower",
  bar: { of: "checks", text: "every instance is valid" },
  rounds: { full: 1, quick: 1 },
  async attempt(bench) {
    const files = await readdir(instancesDir).catch(() => []);
    if (reposDir === undefined || files.length === 0) {
      const note = `did not run: set ATOLL_SWE_REPOS to a folder of clones, and have instances in ${instancesDir}`;
      return { ours: [0], checks: [], notes: [note] };
    }
    const sets = await Promise.all(files.map((file) => readDataSet(join(instancesDir, file))));
    const instances = sets.flat();
    const items = instances.flatMap((instance) =>
      predictions.map(({ model, patchOf }): RunItem => {
        return { instance, prediction: { instanceId: instance.id, model, patch: patchOf(instance) } };
      }),
    );
    await using runner = await RunnerServer.start(bench);
    bench.progress.report(`${instances.length} instances`);
    const report = await runner.run(items, { jobs: 2, repos: reposDir });
    const gold = report.instances.filter(({ model }) => model === "gold");
    return { ours: gold.map(({ durationMs }) => durationMs), checks: report.instances.map(checkOf) };
  },
};

function checkOf({ id, model, verdict, reason }: InstanceReport): Check {
  const expected = predictions.find((prediction) => prediction.model === model)?.verdict;
  return {
    text: `${id} ${model}: ${verdict}${verdict === expected ? "" : ` (${reason})`}`,
    isMet: verdict === expected,
  };
}
