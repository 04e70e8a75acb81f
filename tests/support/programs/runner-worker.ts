import { AtollClient, type RunItem, runInstances, type SandboxClient } from "@atoll/runner";
import { Atoll } from "@atoll/sdk";
import { LocalClient } from "../../../packages/runner/test/support/local-client.ts";
import { machinePlan } from "../../../packages/runner/test/support/plans.ts";

/** What the program is asked to do: run the items, and kill itself without mercy at an event. */
export interface RunnerWorkerOptions {
  directory: string;
  cacheDirectory: string;
  items: readonly RunItem[];
  killAt?: { type: string; stage: string };
  /** The directory of a client whose sandboxes are processes of this machine, or an Atoll server. */
  sandboxes: { local: string } | { url: string; key: string };
}

export function clientOf(sandboxes: RunnerWorkerOptions["sandboxes"]): SandboxClient {
  if ("local" in sandboxes) return new LocalClient(sandboxes.local);
  return new AtollClient({ atoll: new Atoll({ baseUrl: sandboxes.url, apiKey: sandboxes.key }) });
}

if (process.argv[2] !== undefined && process.argv[1]?.includes("runner-worker") === true) {
  const { directory, cacheDirectory, items, killAt, sandboxes } = JSON.parse(process.argv[2]) as RunnerWorkerOptions;
  await runInstances({
    runId: "run",
    directory,
    cacheDirectory,
    items,
    client: clientOf(sandboxes),
    plan: machinePlan,
    signal: new AbortController().signal,
    onEvent: (event) => {
      const isThere = event.type === killAt?.type && "stage" in event && event.stage === killAt.stage;
      if (isThere) process.kill(process.pid, "SIGKILL");
    },
  });
}
