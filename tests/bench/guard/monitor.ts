import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Atoll, Sandbox } from "@atoll/sdk";
import type { Trial } from "../benchmark.ts";
import { cpuGroupOf, processCpuMs, watchShares } from "../cpu-time.ts";
import { ServerProcess } from "../server/server-process.ts";
import type { Workbench } from "../workbench.ts";

const full = { sandboxes: 100, windows: 3, windowMs: 20_000, settleMs: 15_000 };
const quick = { sandboxes: 20, windows: 2, windowMs: 10_000, settleMs: 10_000 };
/** The bar of `engine.idle`, which holds for each sandbox while it is sampled. */
const idlePercent = 0.1;
const startAtOnce = 3;

/** What the samples of many idle sandboxes cost the server, and whether the sandboxes stay idle. */
export const monitor: Trial = {
  name: "guard.monitor",
  title: `processor time of the sampler with ${full.sandboxes} idle sandboxes, at its default interval`,
  unit: "% of a core",
  better: "lower",
  bar: { of: "ours", is: "at most", value: 1 },
  rounds: { full: full.sandboxes, quick: quick.sandboxes },
  async attempt(bench, rounds) {
    const { windows, windowMs, settleMs } = bench.isQuick ? quick : full;
    const { signal, progress } = bench;
    await using server = await ServerProcess.start({ dir: `${bench.dir}/server` });
    await using client = new Atoll({ baseUrl: server.url, apiKey: server.key, requestTimeoutMs: 300_000 });
    const first = await Sandbox.create({ client, signal });
    await startMany(bench, client, rounds - 1);
    progress.report("sandboxes become idle");
    await sleep(settleMs, undefined, { signal });
    const runs = join(server.dataDir, "sandboxes", first.id);
    const [container = ""] = await readdir(join(runs, "run"));
    const record = JSON.parse(await readFile(join(runs, "record.json"), "utf8")) as { container: { pid: number } };
    const group = await cpuGroupOf({ pid: record.container.pid, id: container }, { up: 1 });
    const readers = [() => sampledMs(server), () => group.readMs(), () => processCpuMs(server.pid)];
    const shares: number[][] = [];
    while (shares.length < windows) {
      progress.report(`watching ${rounds} sandboxes, ${shares.length + 1} of ${windows}`);
      shares.push(await watchShares(readers, { forMs: windowMs, signal }));
    }
    const mean = (index: number): number => shares.reduce((sum, share) => sum + (share[index] ?? 0), 0) / shares.length;
    const ofEach = mean(1) / rounds;
    const { samples } = await first.getMetricsHistory();
    return {
      ours: shares.map(([sampler = 0]) => sampler),
      checks: [
        {
          text: `each sandbox used ${ofEach.toFixed(3)} % of a core, ≤ ${idlePercent} allowed, as in engine.idle`,
          isMet: ofEach <= idlePercent,
        },
        { text: `${samples.length} samples of the first sandbox are kept`, isMet: samples.length >= windows },
      ],
      notes: [
        `the server as a whole used ${mean(2).toFixed(1)} % of a core`,
        ...(rounds < full.sandboxes ? [`the bar is about ${full.sandboxes} sandboxes: these were ${rounds}`] : []),
      ],
    };
  },
};

/** Reads for how long samples have kept the server's only thread busy. */
async function sampledMs({ url, key }: ServerProcess): Promise<number> {
  const answer = await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${key}` } });
  const seconds = /^atoll_monitor_seconds_total (\S+)$/m.exec(await answer.text())?.[1];
  if (seconds === undefined) throw new Error(`The server does not say what its samples cost: ${answer.status}`);
  return Number(seconds) * 1000;
}

async function startMany({ signal, progress }: Workbench, client: Atoll, count: number): Promise<void> {
  let begun = 0;
  const startSome = async (): Promise<void> => {
    while (begun < count) {
      begun += 1;
      progress.report(`${begun} of ${count} start`);
      await Sandbox.create({ client, signal });
    }
  };
  await Promise.all(Array.from({ length: startAtOnce }, startSome));
}
