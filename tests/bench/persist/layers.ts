import type { Sandbox } from "@atoll/engine";
import { takeTurns, type Benchmark } from "../benchmark.ts";
import { readOutput, type Lab } from "../lab.ts";
import { formatNumber } from "../report.ts";
import { percentile } from "../statistics.ts";
import { PhaseTally } from "./phase-tally.ts";

const MiB = 1024 * 1024;
const largeMib = 1024;
const mediumMib = 64;
const memoryMib = 256;
const changedMib = 1;

/** Data that was saved before must not be saved again: a small change costs the same on a large disk. */
export const layers: Benchmark = {
  name: "persist.layers",
  title:
    `pause with ${largeMib} MiB of saved files, ${changedMib} MiB of them changed since; ` +
    "rival: our own pause without any",
  unit: "ms",
  better: "lower",
  bar: { of: "ratio", is: "at most", value: 1.5 },
  rounds: { full: 30, quick: 10 },
  async run(lab, rounds) {
    await using empty = await SavedSandbox.make(lab, { filesMib: 0, memoryMib: 0 });
    await using large = await SavedSandbox.make(lab, { filesMib: largeMib, memoryMib: 0 });
    const tally = new PhaseTally();
    const samples = await takeTurns(lab, rounds, {
      ours: async () => {
        await large.change();
        const { phases, tookMs } = await large.pause();
        tally.add(phases, tookMs, "record");
        await large.resume();
        return tookMs;
      },
      rival: async () => {
        const { tookMs } = await empty.pause();
        await empty.resume();
        return tookMs;
      },
    });
    return {
      ...samples,
      phases: tally.last(rounds),
      checks: [],
      notes: [
        `resume: ${empty.resumes} without files, ${large.resumes} with ${largeMib} MiB`,
        `the first pause with ${largeMib} MiB: ${formatNumber(large.firstPauseMs)} ms`,
        await reportOne(lab, rounds, { filesMib: mediumMib, memoryMib: 0 }),
        await reportOne(lab, rounds, { filesMib: 0, memoryMib }),
      ],
    };
  },
};

async function reportOne(lab: Lab, rounds: number, size: Size): Promise<string> {
  await using sandbox = await SavedSandbox.make(lab, size);
  const pauses: number[] = [];
  for (let round = 0; round < rounds; round++) {
    if (size.filesMib > 0) await sandbox.change();
    const { tookMs } = await sandbox.pause();
    pauses.push(tookMs);
    await sandbox.resume();
  }
  const what = size.memoryMib > 0 ? `${size.memoryMib} MiB of dirty memory` : `${size.filesMib} MiB of files`;
  return `with ${what}: pause ${formatNumber(percentile(pauses, 0.5))} ms, resume ${sandbox.resumes}`;
}

interface Size {
  filesMib: number;
  memoryMib: number;
}

/** A sandbox with data in it that was paused and resumed once. */
class SavedSandbox implements AsyncDisposable {
  #lab: Lab;
  #sandbox: Sandbox;
  #resumeTimes: number[] = [];
  firstPauseMs = 0;

  private constructor(lab: Lab, sandbox: Sandbox) {
    this.#lab = lab;
    this.#sandbox = sandbox;
  }

  static async make(lab: Lab, size: Size): Promise<SavedSandbox> {
    const saved = new SavedSandbox(lab, await lab.create({ memoryBytes: 2048 * MiB, tmpBytes: 512 * MiB }));
    await saved.#write("/home/saved", size.filesMib);
    // The data is random, so that it cannot be compressed; /dev/shm is memory of the sandbox.
    await saved.#write("/dev/shm/dirty", size.memoryMib);
    saved.firstPauseMs = (await saved.pause()).tookMs;
    await saved.resume();
    saved.#resumeTimes = [];
    return saved;
  }

  /** The p50 of the resumes so far, as text. */
  get resumes(): string {
    return `${formatNumber(percentile(this.#resumeTimes, 0.5))} ms`;
  }

  async change(): Promise<void> {
    await this.#write("/home/changed", changedMib);
  }

  async pause(): Promise<{ phases: Record<string, number>; tookMs: number }> {
    const startMs = performance.now();
    const { phases } = await this.#lab.engine.pause(this.#sandbox.id);
    return { phases, tookMs: performance.now() - startMs };
  }

  /** Measures a resume, to the first answer. */
  async resume(): Promise<void> {
    const startMs = performance.now();
    await this.#lab.engine.resume(this.#sandbox.id);
    this.#resumeTimes.push(performance.now() - startMs);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#sandbox.kill();
  }

  async #write(path: string, mib: number): Promise<void> {
    if (mib === 0) return;
    const script = `head -c ${mib}M /dev/urandom >${path}`;
    await readOutput(await this.#sandbox.spawn({ argv: ["/bin/sh", "-c", script], cwd: "/", user: "root" }));
  }
}
