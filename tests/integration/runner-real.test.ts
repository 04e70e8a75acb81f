import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { AtollClient, goldPredictions, type Instance, readDataSet, runInstances } from "@atoll/runner";
import { Atoll } from "@atoll/sdk";
import { describe, expect, test } from "vitest";
import { makeDataDir } from "../support/test-root.ts";
import { startTestServer } from "../support/test-server.ts";

/** A folder of clones, and a folder of rows of the data set. Neither is part of the repository. */
const repos = process.env["ATOLL_SWE_REPOS"];
const rows = process.env["ATOLL_SWE_INSTANCES"];
const isGiven = repos !== undefined && rows !== undefined;
const because = isGiven ? "" : ", which did not run: ATOLL_SWE_REPOS and ATOLL_SWE_INSTANCES name no folders";

const hours = 60 * 60_000;

/** The registry of packages may be a mirror in the machine's own network. */
const policy = {
  drivers: ["gvisor"],
  egress: { allow: ["*", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "203.0.113.0/24"] },
};

/** A prediction that changes something else. */
const wrongPatch = `diff --git a/atoll-wrong.txt b/atoll-wrong.txt
new file mode 100644
--- /dev/null
+++ b/atoll-wrong.txt
@@ -0,0 +1 @@
+wrong
`;

describe.skipIf(!isGiven)(`instances of the data set${because}`, () => {
  test(
    "are resolved by the gold patch, unresolved by a wrong one, and empty with an empty one",
    { timeout: 6 * hours },
    async () => {
      const names = (await readdir(rows ?? "")).filter((name) => name.endsWith(".json"));
      const sets = await Promise.all(names.map((name) => readDataSet(join(rows ?? "", name))));
      const instances = sets.flat();
      const directory = await makeDataDir();
      await using server = await startTestServer({ flags: ["--policy", JSON.stringify(policy)] });
      await using client = new AtollClient({ atoll: new Atoll({ baseUrl: server.url, apiKey: server.key }) });
      const run = async (model: string, patchOf: (instance: Instance) => string): Promise<Record<string, string>> => {
        const report = await runInstances({
          runId: model,
          directory: join(directory, model),
          cacheDirectory: join(directory, "cache"),
          client,
          repos: repos ?? "",
          items: instances.map((instance) => ({
            instance,
            prediction: { instanceId: instance.id, model, patch: patchOf(instance) },
          })),
          signal: new AbortController().signal,
        });
        return Object.fromEntries(report.instances.map(({ id, verdict }) => [id, verdict]));
      };
      const all = (verdict: string) => Object.fromEntries(instances.map(({ id }) => [id, verdict]));
      const gold = new Map(goldPredictions(instances).map(({ instanceId, patch }) => [instanceId, patch]));
      expect(await run("gold", ({ id }) => gold.get(id) ?? "")).toEqual(all("resolved"));
      expect(await run("wrong", () => wrongPatch)).toEqual(all("unresolved"));
      expect(await run("empty", () => "")).toEqual(all("empty_patch"));
    },
  );
});
