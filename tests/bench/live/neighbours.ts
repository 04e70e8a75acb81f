import { setTimeout as sleep } from "node:timers/promises";
import { LiveManager, ProcessHost } from "@atoll/live";
import type { Comparison } from "../benchmark.ts";
import { processCpuMs } from "../cpu-time.ts";
import type { Lab } from "../lab.ts";
import { percentile } from "../statistics.ts";
import { GeneratedApp } from "./generated-app.ts";

const full = { apps: 100, calls: 2_000 };
const quick = { apps: 6, calls: 200 };
const allowedChange = 1.2;

/** What apps notice of neighbours with an endless loop, with a hunger for memory, and with a crash loop. */
export const neighbours: Comparison = {
  name: "live.neighbours",
  title: "a call to one of 100 apps while three of them misbehave; rival: the same call before",
  unit: "ms",
  better: "lower",
  bar: { of: "checks", text: "p99 changes by < 20 %" },
  rounds: { full: 1, quick: 1 },
  async run(lab) {
    const { apps, calls } = lab.isQuick ? quick : full;
    await using world = await startApps(lab, apps);
    const { manager } = world;
    const measure = async (): Promise<number[]> => {
      const times: number[] = [];
      for (let at = 0; at < calls; at += 1) {
        lab.signal.throwIfAborted();
        const startedAt = performance.now();
        await manager.call(`app${3 + (at % (apps - 3))}`, "s0", "answer");
        times.push(performance.now() - startedAt);
      }
      return times;
    };
    await measure();
    lab.progress.report("measuring without trouble");
    await lab.quiet.wait();
    const rival = await measure();
    lab.progress.report("measuring beside an endless loop, a hoarder and a crash loop");
    const done = new AbortController();
    const trouble = ["hang", "hoard", "crash"].map(async (what, at) => {
      while (!done.signal.aborted) await manager.call(`app${at}`, "s0", what).catch(() => sleep(1));
    });
    const ours = await measure();
    done.abort();
    for (let at = 0; at < 3; at += 1) await manager.destroy(`app${at}`);
    await Promise.all(trouble);
    const change = percentile(ours, 0.99) / percentile(rival, 0.99);
    const text =
      `p99 ${percentile(ours, 0.99).toFixed(2)} ms beside trouble, ${percentile(rival, 0.99).toFixed(2)} ms before: ` +
      `× ${change.toFixed(2)}, < ${allowedChange} allowed`;
    return { ours, rival, checks: [{ text, isMet: change < allowedChange }] };
  },
};

/** The CPU time of this process, which watches the files of many apps in which nothing changes. */
export const watch: Comparison = {
  name: "live.watch",
  title: "CPU of the manager that watches 100 idle apps; rival: the same without watching",
  unit: "% of a core",
  better: "lower",
  bar: { of: "ours", is: "at most", value: 1 },
  rounds: { full: 3, quick: 1 },
  async run(lab, rounds) {
    const { apps } = lab.isQuick ? quick : full;
    await using world = await startApps(lab, apps);
    const { manager } = world;
    const forMs = lab.isQuick ? 3_000 : 15_000;
    const share = async (): Promise<number> => {
      const before = await processCpuMs(process.pid);
      await sleep(forMs, undefined, { signal: lab.signal });
      return (((await processCpuMs(process.pid)) - before) / forMs) * 100;
    };
    const ours: number[] = [];
    const rival: number[] = [];
    for (let round = 1; round <= rounds; round += 1) {
      lab.progress.report(`round ${round} of ${rounds}`);
      rival.push(await share());
      for (let at = 0; at < apps; at += 1) await manager.enableAutoReload(`app${at}`);
      ours.push(await share());
      for (let at = 0; at < apps; at += 1) manager.disableAutoReload(`app${at}`);
    }
    return { ours, rival, checks: [] };
  },
};

async function startApps(lab: Lab, apps: number): Promise<AsyncDisposable & { manager: LiveManager }> {
  const app = await GeneratedApp.write(`${lab.dir}/app`, 100);
  const manager = new LiveManager({ hosts: [new ProcessHost()] });
  for (let at = 0; at < apps; at += 1) {
    lab.progress.report(`app ${at + 1} of ${apps} starts`);
    await manager.create(`app${at}`, app.folder, {
      typeCheck: "off",
      maxRestarts: 1_000_000,
      limits: { cpus: 0.2, memoryBytes: 128 * 1024 * 1024, unresponsiveMs: 1_000 },
    });
  }
  return { manager, [Symbol.asyncDispose]: () => manager[Symbol.asyncDispose]() };
}
