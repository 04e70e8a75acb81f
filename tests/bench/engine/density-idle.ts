import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Atoll, Sandbox } from "@atoll/sdk";
import type { Trial } from "../benchmark.ts";
import { cpuGroupOf, machineCpuMs, processCpuMs, watchShares, type CpuGroup } from "../cpu-time.ts";
import { ServerProcess } from "../server/server-process.ts";
import { percentile } from "../statistics.ts";
import type { Workbench } from "../workbench.ts";

const full = { sandboxes: 300, windows: 4, windowMs: 15_000, execs: 100 };
const quick = { sandboxes: 20, windows: 2, windowMs: 5_000, execs: 20 };
const allowedPercent = 40;
const allowedRatio = 2;
const startAtOnce = 3;
/** Work that is left after the last start ends within this time, and then all sandboxes are idle. */
const settleMs = 15_000;

/** Hundreds of idle sandboxes must leave the processors to the sandboxes that work. */
export const densityIdle: Trial = {
  name: "engine.density_idle",
  title:
    `processor time of ${full.sandboxes} idle sandboxes and of their server together; ` +
    "and /bin/true in one of them",
  unit: "% of a core",
  better: "lower",
  bar: { of: "ours", is: "at most", value: allowedPercent },
  rounds: { full: full.sandboxes, quick: quick.sandboxes },
  async attempt(bench, rounds) {
    const { windows, windowMs, execs } = bench.isQuick ? quick : full;
    const { signal, progress } = bench;
    const [before = 0] = await watchShares([machineCpuMs], { forMs: 2_000, signal });
    await using server = await ServerProcess.start({ dir: `${bench.dir}/server` });
    await using client = new Atoll({ baseUrl: server.url, apiKey: server.key, requestTimeoutMs: 300_000 });
    const first = await Sandbox.create({ client, signal });
    const alone = await timeExecs(bench, first, execs);
    await startMany(bench, client, rounds - 1);
    progress.report("sandboxes become idle");
    await sleep(settleMs, undefined, { signal });
    const sandboxes = await groupOfAll(server.dataDir, first.id);
    const readers = [() => processCpuMs(server.pid), () => sandboxes.readMs(), machineCpuMs];
    const shares: { server: number; sandboxes: number; machine: number }[] = [];
    while (shares.length < windows) {
      progress.report(`watching ${rounds} sandboxes, ${shares.length + 1} of ${windows}`);
      const [ofServer = 0, ofSandboxes = 0, machine = 0] = await watchShares(readers, { forMs: windowMs, signal });
      shares.push({ server: ofServer, sandboxes: ofSandboxes, machine });
    }
    const amongMany = await timeExecs(bench, first, execs);
    const [p95Alone, p95Among] = [percentile(alone, 0.95), percentile(amongMany, 0.95)];
    const machine = mean(shares.map((share) => share.machine));
    return {
      ours: shares.map((share) => share.server + share.sandboxes),
      checks: [
        {
          text:
            `the whole machine used ${machine.toFixed(1)} % of one core ` +
            `(${before.toFixed(1)} % before the first sandbox), ≤ ${allowedPercent} allowed`,
          isMet: machine <= allowedPercent,
        },
        {
          text:
            `/bin/true in one of them: p95 ${p95Among.toFixed(1)} ms, alone ${p95Alone.toFixed(1)} ms, ` +
            `p50 ${percentile(amongMany, 0.5).toFixed(1)} and ${percentile(alone, 0.5).toFixed(1)} ms, n = ${execs}; ` +
            `≤ ${allowedRatio} × allowed`,
          isMet: p95Among <= p95Alone * allowedRatio,
        },
      ],
      notes: [
        `the sandboxes took ${mean(shares.map((share) => share.sandboxes)).toFixed(1)} % of a core, ` +
          `their server ${mean(shares.map((share) => share.server)).toFixed(1)} %`,
        ...(rounds < full.sandboxes ? [`the bar is about ${full.sandboxes} sandboxes: these were ${rounds}`] : []),
      ],
    };
  },
};

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

async function timeExecs(bench: Workbench, sandbox: Sandbox, count: number): Promise<number[]> {
  const times: number[] = [];
  while (times.length < count) {
    bench.progress.report(`${times.length + 1} of ${count} commands`);
    const startMs = performance.now();
    const { exitCode } = await bench.until(sandbox.commands.run(["/bin/true"]), "end of /bin/true");
    if (exitCode !== 0) throw new Error(`/bin/true ended with ${exitCode}`);
    times.push(performance.now() - startMs);
  }
  // In the first runs nothing is warm.
  return times.slice(Math.ceil(count / 10));
}

/** Returns the cgroup that contains all sandboxes of a server. */
async function groupOfAll(dataDir: string, id: string): Promise<CpuGroup> {
  const runDir = join(dataDir, "sandboxes", id, "run");
  const [container] = await readdir(runDir);
  const record = JSON.parse(await readFile(join(dataDir, "sandboxes", id, "record.json"), "utf8")) as {
    container: { pid: number };
  };
  if (container === undefined) throw new Error(`Sandbox ${id} has no container`);
  return cpuGroupOf({ pid: record.container.pid, id: container }, { up: 1 });
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
