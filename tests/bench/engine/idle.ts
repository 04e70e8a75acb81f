import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Engine, type Sandbox } from "@atoll/engine";
import type { Trial } from "../benchmark.ts";
import { cpuGroupOf, watchShares } from "../cpu-time.ts";
import { launcherPid } from "../lab.ts";
import { percentile } from "../statistics.ts";
import type { Workbench } from "../workbench.ts";

const guestPath = fileURLToPath(new URL("../../../.cache/atoll-guest", import.meta.url));
const nodeServer =
  "require('http').createServer((_, answer) => answer.end('here')).listen(8000, () => console.log('listens'))";

const allowedPercent = 0.1;
const allowedLaterMs = 2;
/** After this time without a request a sandbox is idle, whatever ran in it before. */
const settleMs = 10_000;
const idleMs = 5_000;
/**
 * Each command starts after this time in which the machine does nothing, also in a sandbox that is in use. Right after
 * another command it would find everything awake.
 */
const pauseMs = 300;
const full = { forMs: 30_000, latencyRounds: 5 };
const quick = { forMs: 10_000, latencyRounds: 1 };

/** Measures what an idle sandbox costs, and whether it is slower afterwards. */
export const idle: Trial = {
  name: "engine.idle",
  title:
    "processor time of an idle sandbox, half of them with an idle Node server; and /bin/true after it has been idle",
  unit: "% of a core",
  better: "lower",
  bar: { of: "ours", is: "at most", value: allowedPercent },
  rounds: { full: 4, quick: 2 },
  async attempt(bench, rounds) {
    const { forMs, latencyRounds } = bench.isQuick ? quick : full;
    const engine = await Engine.open({ dataDir: `${bench.dir}/data`, guestPath });
    try {
      const empty = await createAll(bench, engine, rounds);
      const serving = await createAll(bench, engine, rounds);
      for (const sandbox of serving) await serve(bench, sandbox);
      bench.progress.report("sandboxes become idle");
      await sleep(settleMs, undefined, { signal: bench.signal });
      const all = [...empty, ...serving];
      const groups = await Promise.all(all.map((sandbox) => cpuGroupOf(containerOf(sandbox))));
      bench.progress.report(`watching ${all.length} sandboxes for ${forMs / 1000} s`);
      const ownMs = async (): Promise<number> => {
        const { user, system } = process.cpuUsage();
        return (user + system) / 1000;
      };
      const readers = groups.map((group) => () => group.readMs());
      const [own = 0, ...shares] = await watchShares([ownMs, ...readers], { forMs, signal: bench.signal });
      const { idleTimes, busyTimes } = await timeAll(bench, all, latencyRounds);
      const [idleP50, busyP50] = [percentile(idleTimes, 0.5), percentile(busyTimes, 0.5)];
      const kinds = [
        { what: "with the guest alone", of: shares.slice(0, rounds) },
        { what: "with an idle Node server", of: shares.slice(rounds) },
      ];
      return {
        ours: shares,
        checks: [
          ...kinds.map(({ what, of }) => ({
            text: `${what}: at most ${percent(Math.max(...of))} of a core each, p50 ${percent(percentile(of, 0.5))}`,
            isMet: percentile(of, 0.5) <= allowedPercent,
          })),
          {
            text:
              `/bin/true after ${idleMs / 1000} s of idling took ${idleP50.toFixed(2)} ms ` +
              `(p95 ${percentile(idleTimes, 0.95).toFixed(2)}), in use ${busyP50.toFixed(2)} ms ` +
              `(p95 ${percentile(busyTimes, 0.95).toFixed(2)}), n = ${idleTimes.length} each; ` +
              `≤ ${allowedLaterMs} ms more allowed`,
            isMet: idleP50 <= busyP50 + allowedLaterMs,
          },
        ],
        notes: [`our own process: ${percent(own)} of a core for all ${all.length}`],
      };
    } finally {
      await Promise.all(engine.list().map(({ id }) => engine.kill(id)));
      await engine.close();
    }
  },
};

async function createAll({ signal }: Workbench, engine: Engine, count: number): Promise<Sandbox[]> {
  const sandboxes: Sandbox[] = [];
  while (sandboxes.length < count) {
    sandboxes.push(await engine.create({ template: "host", driver: "gvisor" }, { signal }));
  }
  return sandboxes;
}

async function serve(bench: Workbench, sandbox: Sandbox): Promise<void> {
  const server = await sandbox.spawn({ argv: ["node", "-e", nodeServer] });
  const output = server[Symbol.asyncIterator]();
  const { done } = await bench.until(output.next(), "first output of a Node server");
  if (done === true) throw new Error("A Node server ended");
  server.discardOutput();
}

/**
 * Lets all sandboxes be idle at the same time, and then runs a command in each, one after the other: once when it has
 * been idle, and once more when it is in use.
 */
async function timeAll(
  bench: Workbench,
  sandboxes: readonly Sandbox[],
  rounds: number,
): Promise<{ idleTimes: number[]; busyTimes: number[] }> {
  const idleTimes: number[] = [];
  const busyTimes: number[] = [];
  for (const sandbox of sandboxes) await time(bench, sandbox);
  for (let round = 1; round <= rounds; round += 1) {
    bench.progress.report(`latency, round ${round} of ${rounds}`);
    await sleep(idleMs, undefined, { signal: bench.signal });
    for (const sandbox of sandboxes) {
      for (const times of [idleTimes, busyTimes]) {
        await sleep(pauseMs, undefined, { signal: bench.signal });
        times.push(await time(bench, sandbox));
      }
    }
  }
  return { idleTimes, busyTimes };
}

async function time(bench: Workbench, sandbox: Sandbox): Promise<number> {
  const startMs = performance.now();
  const process = await sandbox.spawn({ argv: ["/bin/true"], cwd: "/" });
  process.discardOutput();
  const { exitCode } = await bench.until(process.wait(), "end of /bin/true");
  if (exitCode !== 0) throw new Error(`/bin/true ended with ${exitCode}`);
  return performance.now() - startMs;
}

function containerOf(sandbox: Sandbox): { pid: number; id: string } {
  const { record } = sandbox;
  if (record.state !== "running") throw new Error(`Sandbox ${record.id} is ${record.state}`);
  return { pid: launcherPid(sandbox), id: record.container.id };
}

function percent(share: number): string {
  return `${share.toFixed(3)} %`;
}
