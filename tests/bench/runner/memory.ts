import { readFile, writeFile } from "node:fs/promises";
import type { Trial } from "../benchmark.ts";
import { MemoryWatch } from "../memory-watch.ts";
import { RunnerServer, smallItem, smallProject } from "./runner-server.ts";

const MiB = 1024 * 1024;
const outputBytes = 1_000_000_000;
const mostMiB = 64;

/** Output without an end and without a character set: what it takes of the memory of the runner and of the server. */
export const memory: Trial = {
  name: "runner.memory",
  title: "a test command prints 1 GB that is no UTF-8: growth of the runner, and of the server",
  unit: "MiB",
  better: "lower",
  bar: { of: "ours", is: "at most", value: mostMiB },
  rounds: { full: 2, quick: 1 },
  async attempt(bench, rounds) {
    await using runner = await RunnerServer.start(bench);
    const project = await smallProject(`${bench.dir}/project`);
    const command = (bytes: number) => [
      "bash",
      "-c",
      `head -c ${bytes} /dev/urandom; echo; python3 -m unittest -v test_calc`,
    ];
    const item = (bytes: number) => smallItem(project, "task", { test: command(bytes) });
    // Both have done everything once, with less output.
    await runner.resolve(item(8 * MiB));
    const ours: number[] = [];
    const server: number[] = [];
    for (let round = 1; round <= rounds; round += 1) {
      bench.progress.report(`round ${round} of ${rounds}`);
      const before = await residentBytes(runner.server.pid);
      await resetPeak(runner.server.pid);
      using watch = new MemoryWatch();
      watch.start();
      const report = await runner.resolve(item(outputBytes + round));
      watch.stop();
      const written = report.attempts.map(({ command: result }) => result?.stdout.bytes ?? 0);
      if (Math.max(...written) < outputBytes) throw new Error(`There were ${Math.max(...written)} bytes of output`);
      ours.push(watch.growthBytes / MiB);
      server.push(((await peakBytes(runner.server.pid)) - before) / MiB);
    }
    const most = Math.max(...server);
    const check = { text: `the server grows by ${Math.round(most)} MiB, at most ${mostMiB}`, isMet: most <= mostMiB };
    return { ours, checks: [check] };
  },
};

async function statusOf(pid: number, field: string): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(new RegExp(`^${field}:\\s+(\\d+) kB`, "m").exec(status)?.[1]) * 1024;
}

/** The largest size so far counts from now on. */
const resetPeak = (pid: number): Promise<void> => writeFile(`/proc/${pid}/clear_refs`, "5");

const residentBytes = (pid: number): Promise<number> => statusOf(pid, "VmRSS");
const peakBytes = (pid: number): Promise<number> => statusOf(pid, "VmHWM");
