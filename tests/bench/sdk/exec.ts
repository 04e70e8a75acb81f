import { Atoll, Sandbox } from "@atoll/sdk";
import { takeSeries, takeTurns, type Comparison } from "../benchmark.ts";
import { startIdleRival } from "../idle-pair.ts";
import { ServerProcess } from "../server/server-process.ts";

/** Runs one command at a time in an existing sandbox, as users do: from a line for the shell to its result. */
export const exec: Comparison = {
  name: "sdk.exec",
  title: "`commands.run('true')` over HTTP, call to result; rival: `runsc exec` of the same",
  unit: "ms",
  better: "lower",
  bar: { of: "ratio", is: "at most", value: 0.5 },
  rounds: { full: 100, quick: 10 },
  async run(lab, rounds) {
    await using server = await ServerProcess.start({ dir: `${lab.dir}/server` });
    await using client = new Atoll({ baseUrl: server.url, apiKey: server.key });
    const samples = await takeSeries(rounds, async (part) => {
      await using sandbox = await Sandbox.create({ client });
      await using bundle = await startIdleRival(lab);
      return await takeTurns(lab, part, {
        ours: () => lab.until(timeRun(sandbox), "end of true"),
        rival: () =>
          lab.until(
            timed(() => bundle.exec(["/bin/bash", "-c", "true"], lab.rival.user)),
            "end of runsc exec",
          ),
      });
    });
    return { ...samples, checks: [] };
  },
};

async function timeRun(sandbox: Sandbox): Promise<number> {
  return timed(async () => {
    const { exitCode } = await sandbox.commands.run("true");
    if (exitCode !== 0) throw new Error(`true ended with ${exitCode}`);
  });
}

async function timed(work: () => Promise<void>): Promise<number> {
  const startMs = performance.now();
  await work();
  return performance.now() - startMs;
}
