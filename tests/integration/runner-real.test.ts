// @module-tag gvisor
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { AtollClient, type Instance, readDataSet, type RunItem, runInstances } from "@atoll/runner";
import { Atoll } from "@atoll/sdk";
import { expect, test } from "vitest";
import { startTestServer } from "../support/test-server.ts";

const shared = fileURLToPath(new URL("../../../shared/swe-instances", import.meta.url));
const instancesDir = process.env["ATOLL_SWE_INSTANCES"] ?? shared;
const repos = process.env["ATOLL_SWE_REPOS"];

const wrongPatch = "diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+nothing\n";

async function readInstances(): Promise<Instance[]> {
  const files = await readdir(instancesDir).catch(() => []);
  return (await Promise.all(files.map((file) => readDataSet(join(instancesDir, file))))).flat();
}

/** An hour of work, for somebody who has the clones. */
test(
  "real instances are resolved by their fix, and not by another patch",
  { timeout: 3 * 3_600_000 },
  async (context) => {
    const instances = await readInstances();
    const why = `it needs a folder of clones in ATOLL_SWE_REPOS, and instances in ${instancesDir}`;
    context.skip(repos === undefined || instances.length === 0, why);
    const items = instances.flatMap((instance): RunItem[] =>
      Object.entries({ gold: instance.goldPatch, empty: "", wrong: wrongPatch }).map(([model, patch]) => ({
        instance,
        prediction: { instanceId: instance.id, model, patch },
      })),
    );
    await using server = await startTestServer();
    await using client = new AtollClient({ atoll: new Atoll({ baseUrl: server.url, apiKey: server.key }) });
    const directory = await mkdtemp(join(tmpdir(), "atoll-real-"));
    try {
      const report = await runInstances({
        runId: "real",
        directory: join(directory, "run"),
        cacheDirectory: join(directory, "cache"),
        client,
        items,
        jobs: 2,
        repos: repos ?? "",
        signal: context.signal,
      });
      const expected = { gold: "resolved", empty: "empty_patch", wrong: "unresolved" } as const;
      expect(report.instances.map(({ id, model, verdict, reason }) => ({ id, model, verdict, reason }))).toEqual(
        items.map(({ instance, prediction }) => ({
          id: instance.id,
          model: prediction?.model,
          verdict: expected[prediction?.model as keyof typeof expected],
          reason: expect.any(String) as string,
        })),
      );
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  },
);
