import { GvisorHost, LiveManager, ProcessHost } from "@atoll/live";
import type { Trial } from "../benchmark.ts";
import { processesOf, pssBytes } from "../process-tree.ts";
import { ServerProcess } from "../server/server-process.ts";
import { GeneratedApp } from "./generated-app.ts";

const MiB = 1024 * 1024;
const allowedGrowthMiB = 5;
const allowedAppMiB = 50;
const full = { reloads: 10_000, apps: 100 };
const quick = { reloads: 300, apps: 5 };
/** The heap is read so many times at either end; the least is what is left after a garbage collection. */
const readings = 200;

/** The growth of the heap of an app over thousands of reloads, and the memory of one app among many. */
export const memory: Trial = {
  name: "live.memory",
  title: `memory of one app of 100 modules among ${full.apps}: all its processes, shared pages divided`,
  unit: "MiB",
  better: "lower",
  bar: { of: "ours", is: "at most", value: allowedAppMiB },
  rounds: { full: 1, quick: 1 },
  async attempt(bench) {
    const { reloads, apps } = bench.isQuick ? quick : full;
    const app = await GeneratedApp.write(`${bench.dir}/app`, 100);
    await using manager = new LiveManager({ hosts: [new ProcessHost()] });
    const options = { typeCheck: "off", probationMs: 0, limits: { cpus: 2 } } as const;
    await manager.create("reloaded", app.folder, options);
    const heap: number[] = [];
    for (let reload = 1; reload <= reloads; reload += 1) {
      bench.signal.throwIfAborted();
      if (reload % 100 === 0) bench.progress.report(`reload ${reload} of ${reloads}`);
      await app.writeService(3, reload + 1);
      await manager.hotReload("reloaded");
      heap.push((await manager.inspect("reloaded")).heapBytes);
    }
    const least = (values: readonly number[]): number => Math.min(...values);
    const growth = (least(heap.slice(-readings)) - least(heap.slice(0, readings))) / MiB;
    await manager.destroy("reloaded");
    for (let at = 1; at <= apps; at += 1) {
      bench.progress.report(`app ${at} of ${apps} starts`);
      await manager.create(`app${at}`, app.folder, options);
    }
    const ours: number[] = [];
    for (let at = 1; at <= apps; at += 1) ours.push((await manager.resourceUsage(`app${at}`)).memoryBytes / MiB);
    await manager.batchDestroy(Array.from({ length: apps }, (_, at) => `app${at + 1}`));
    const inGvisor = await memoryInGvisor(bench, app.folder, apps);
    return {
      ours,
      checks: [
        {
          text: `in gVisor ${inGvisor.toFixed(1)} MiB for each of ${apps}, < ${allowedAppMiB} allowed`,
          isMet: inGvisor < allowedAppMiB,
        },
        {
          text: `the heap grows by ${growth.toFixed(2)} MiB over ${reloads} reloads, < ${allowedGrowthMiB} allowed`,
          isMet: growth < allowedGrowthMiB,
        },
      ],
    };
  },
};

/** The memory of one app among many in sandboxes: runsc and the launcher with it, without the server. */
async function memoryInGvisor(bench: Parameters<Trial["attempt"]>[0], folder: string, apps: number): Promise<number> {
  const dir = `${bench.dir}/server`;
  await using server = await ServerProcess.start({ dir });
  await using host = new GvisorHost({ baseUrl: server.url, apiKey: server.key });
  await using manager = new LiveManager({ hosts: [host] });
  for (let at = 1; at <= apps; at += 1) {
    bench.progress.report(`app ${at} of ${apps} starts in gVisor`);
    await manager.create(`app${at}`, folder, { typeCheck: "off", limits: { cpus: 2 } });
  }
  const pids = (await processesOf(`${dir}/`)).filter((pid) => pid !== server.pid);
  const each = await Promise.all(pids.map((pid) => pssBytes(pid)));
  return each.reduce((sum, bytes) => sum + bytes, 0) / apps / MiB;
}
