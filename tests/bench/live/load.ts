import { LiveManager, ProcessHost } from "@atoll/live";
import type { Trial } from "../benchmark.ts";
import { GeneratedApp } from "./generated-app.ts";

const callers = 8;

/** Calls that never stop while the code is swapped again and again: none fails, is lost, doubled or out of order. */
export const load: Trial = {
  name: "live.load",
  title: `the longest reload while ${callers} callers keep calling the reloaded service`,
  unit: "ms",
  better: "lower",
  bar: { of: "checks", text: "0 failed, 0 lost, 0 doubled, order kept" },
  rounds: { full: 100, quick: 10 },
  async attempt(bench, rounds) {
    const app = await GeneratedApp.write(`${bench.dir}/app`, 100);
    await using manager = new LiveManager({ hosts: [new ProcessHost()] });
    await manager.create("bench", app.folder, { typeCheck: "off", probationMs: 0, limits: { cpus: 2 } });
    const done = new AbortController();
    const seen: number[][] = [];
    let failed = 0;
    const call = async (mine: number[]): Promise<void> => {
      while (!done.signal.aborted) {
        try {
          mine.push(((await manager.call("bench", "s3", "answer")) as { calls: number }).calls);
        } catch {
          failed += 1;
        }
      }
    };
    const calling = Array.from({ length: callers }, () => {
      const mine: number[] = [];
      seen.push(mine);
      return call(mine);
    });
    const ours: number[] = [];
    for (let round = 1; round <= rounds; round += 1) {
      bench.signal.throwIfAborted();
      bench.progress.report(`reload ${round} of ${rounds}`);
      await app.writeService(3, round + 1);
      ours.push((await manager.hotReload("bench")).durationMs);
    }
    done.abort();
    await Promise.all(calling);
    const all = seen.flat();
    const count = all.length;
    const isOrdered = seen.every((mine) => mine.every((value, at) => at === 0 || value > (mine[at - 1] ?? 0)));
    const last = ((await manager.call("bench", "s3", "answer")) as { calls: number }).calls;
    return {
      ours,
      checks: [
        { text: `${count} calls during ${rounds} reloads, ${failed} failed`, isMet: failed === 0 },
        {
          text: `${last - 1 - count} lost, ${count - new Set(all).size} doubled`,
          isMet: last - 1 === count && new Set(all).size === count,
        },
        { text: `each caller's answers are ${isOrdered ? "" : "not "}in order`, isMet: isOrdered },
      ],
    };
  },
};
