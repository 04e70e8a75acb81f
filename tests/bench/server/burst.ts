import { Atoll, Sandbox } from "@atoll/sdk";
import type { Trial } from "../benchmark.ts";
import { ServerProcess } from "./server-process.ts";

/** Many clients create a sandbox at the same moment. */
export const burst: Trial = {
  name: "server.burst",
  title: "many `Sandbox.create` at once, each to its own answer; all have to succeed",
  unit: "ms",
  better: "lower",
  bar: { of: "checks", text: "100 % succeed" },
  rounds: { full: 50, quick: 10 },
  async attempt(bench, rounds) {
    await using server = await ServerProcess.start({ dir: `${bench.dir}/server` });
    await using client = new Atoll({ baseUrl: server.url, apiKey: server.key, requestTimeoutMs: 300_000 });
    const failures = new Set<string>();
    let answered = 0;
    const createOne = async (index: number): Promise<number> => {
      const startMs = performance.now();
      try {
        const sandbox = await Sandbox.create({ client, driver: bench.driver, signal: bench.signal });
        const tookMs = performance.now() - startMs;
        const { stdout } = await sandbox.commands.run(["echo", String(index)], { signal: bench.signal });
        if (stdout !== `${index}\n`) throw new Error(`Sandbox ${index} printed ${JSON.stringify(stdout)}`);
        answered += 1;
        return tookMs;
      } catch (error) {
        bench.signal.throwIfAborted();
        failures.add(error instanceof Error ? error.message : String(error));
        return performance.now() - startMs;
      }
    };
    bench.progress.report(`${rounds} at once`);
    const ours = await Promise.all(Array.from({ length: rounds }, (_, index) => createOne(index)));
    const alive: string[] = [];
    for await (const { id } of client.sandboxes({ state: "running" })) alive.push(id);
    bench.progress.report("removing them");
    await Promise.all(alive.map((id) => Sandbox.kill(id, { client })));
    return {
      ours,
      checks: [
        { text: `${answered} of ${rounds} started and answered`, isMet: answered === rounds },
        { text: `${alive.length} were alive at once`, isMet: alive.length === rounds },
      ],
      notes: [...failures],
    };
  },
};
