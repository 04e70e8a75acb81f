import { Atoll, Sandbox } from "@atoll/sdk";
import { takeSeries, takeTurns, type Comparison } from "../benchmark.ts";
import { ServerProcess } from "../server/server-process.ts";

/** Runs commands on two servers that differ only in what the audit log has of them. */
export const audit: Comparison = {
  name: "guard.audit",
  title: "`commands.run('true')` with audit level `full`, call to result; rival: the same with level `none`",
  unit: "ms",
  better: "lower",
  bar: { of: "ratio", is: "at most", value: 1.05 },
  rounds: { full: 200, quick: 40 },
  async run(lab, rounds) {
    const start = async (level: "full" | "none"): Promise<ServerProcess> =>
      ServerProcess.start({ dir: `${lab.dir}/server-${level}`, flags: ["--audit-level", level] });
    await using full = await start("full");
    await using none = await start("none");
    await using audited = new Atoll({ baseUrl: full.url, apiKey: full.key });
    await using plain = new Atoll({ baseUrl: none.url, apiKey: none.key });
    const samples = await takeSeries(rounds, async (part) => {
      await using ours = await Sandbox.create({ client: audited });
      await using rival = await Sandbox.create({ client: plain });
      return await takeTurns(lab, part, {
        ours: () => lab.until(timeRun(ours), "end of true"),
        rival: () => lab.until(timeRun(rival), "end of true"),
      });
    });
    return { ...samples, checks: [] };
  },
};

async function timeRun(sandbox: Sandbox): Promise<number> {
  const startMs = performance.now();
  const { exitCode } = await sandbox.commands.run("true");
  if (exitCode !== 0) throw new Error(`true ended with ${exitCode}`);
  return performance.now() - startMs;
}
