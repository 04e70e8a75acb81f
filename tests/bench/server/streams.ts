import { setMaxListeners } from "node:events";
import { availableParallelism } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { Atoll, Sandbox, type CommandHandle } from "@atoll/sdk";
import type { Trial } from "../benchmark.ts";
import type { Workbench } from "../workbench.ts";
import { ServerProcess } from "./server-process.ts";

const MiB = 1024 * 1024;
const full = { sandboxes: 100, forMs: 600_000, startAtOnce: 4 };
const quick = { sandboxes: 5, forMs: 20_000, startAtOnce: 2 };
/**
 * The interval in which the server is asked for its event loop delays since the last time. If p99 of every interval is
 * below the bar, so is p99 of the whole time.
 */
const minuteMs = 60_000;
/** The interval in which the server's memory is measured. */
const lookMs = 5_000;
const allowedDelayMs = 100;
/**
 * The allowed growth of the lowest memory from the first to the second half of the time that follows warming up, which
 * is the first quarter.
 */
const allowedGrowthBytes = 32 * MiB;

/** The share of a core that the clock of gVisor's systrap takes in every sandbox. */
const clockShare = 0.05;

/**
 * A program that prints ten numbered lines a second, so that a lost or doubled line shows. It is one process, because
 * the server should be busy and not the sandboxes.
 */
const script = `
import itertools, time
for i in itertools.count():
    print("line", i, "of a stream that goes on and on", flush=True)
    time.sleep(0.1)
`;

interface Readings {
  /** The p99 of each minute. */
  delaysMs: number[];
  memoryBytes: number[];
}

/** A server that forwards much output must stay responsive and must not grow. */
export const streams: Trial = {
  name: "server.streams",
  title: `event loop delay (p99) of a server with ${full.sandboxes} sandboxes, each streaming`,
  unit: "ms",
  better: "lower",
  bar: { of: "checks", text: `p99 < ${allowedDelayMs} ms, memory flat` },
  rounds: { full: full.sandboxes, quick: quick.sandboxes },
  async attempt(bench, rounds) {
    const { forMs, startAtOnce } = bench.isQuick ? quick : full;
    const platform = platformFor(bench, rounds);
    await using server = await ServerProcess.start({ dir: `${bench.dir}/server`, flags: ["--platform", platform] });
    await using client = new Atoll({ baseUrl: server.url, apiKey: server.key, requestTimeoutMs: 300_000 });
    const done = new AbortController();
    // Each stream adds one listener.
    setMaxListeners(0, done.signal);
    const commands = await startAll(bench, client, rounds, startAtOnce);
    const readers = commands.map((command) => countLines(command, done.signal));
    const outcomes = Promise.allSettled(readers);
    // This discards the delays of the set-up.
    await readDelay(server);
    const { delaysMs, memoryBytes } = await watch(bench, server, forMs);
    done.abort();
    const settled = await outcomes;
    const counts = settled.flatMap((outcome) => (outcome.status === "fulfilled" ? [outcome.value] : []));
    const failures = settled.flatMap((outcome) => (outcome.status === "rejected" ? [String(outcome.reason)] : []));
    const worstMs = Math.max(...delaysMs);
    const growthBytes = growth(memoryBytes);
    const lines = counts.reduce((sum, count) => sum + count, 0);
    return {
      ours: delaysMs,
      checks: [
        {
          text: `p99 of the worst of ${delaysMs.length} minutes was ${worstMs.toFixed(0)} ms`,
          isMet: worstMs < allowedDelayMs,
        },
        {
          text:
            `memory grew by ${(growthBytes / MiB).toFixed(1)} MiB, < ${allowedGrowthBytes / MiB} allowed, ` +
            `and was between ${range(memoryBytes)} MiB`,
          isMet: growthBytes < allowedGrowthBytes,
        },
        { text: `${counts.length} of ${rounds} streams were complete`, isMet: counts.length === rounds },
      ],
      notes: [
        `${rounds} sandboxes (${bench.driver}, platform ${platform}) for ${forMs / 1000} s, ` +
          `${Math.round(lines / (forMs / 1000))} lines per second altogether`,
        ...(bench.isQuick
          ? [`the bar is about ${full.sandboxes} sandboxes for ${full.forMs / 1000} s: this was less`]
          : []),
        ...new Set(failures),
      ],
    };
  },
};

/** Chooses systrap if the machine has enough processors for its clocks beside the work. */
function platformFor({ driver }: Workbench, sandboxes: number): "systrap" | "ptrace" {
  return driver === "gvisor" && sandboxes * clockShare > availableParallelism() / 2 ? "ptrace" : "systrap";
}

/** Starts all sandboxes before any command, because a sandbox that starts beside many streams waits long. */
async function startAll(bench: Workbench, client: Atoll, count: number, atOnce: number): Promise<CommandHandle[]> {
  const { driver, signal, progress } = bench;
  const sandboxes = await someAtOnce(atOnce, count, async (index) => {
    const sandbox = await Sandbox.create({ client, driver, signal });
    progress.report(`${index + 1} of ${count} start`);
    return sandbox;
  });
  return someAtOnce(atOnce, count, async (index) => {
    const command = await sandboxes[index]?.commands.run(["python3", "-c", script], { background: true, signal });
    if (command === undefined) throw new Error(`There is no sandbox ${index}`);
    progress.report(`${index + 1} of ${count} stream`);
    return command;
  });
}

async function someAtOnce<T>(atOnce: number, count: number, make: (index: number) => Promise<T>): Promise<T[]> {
  const made: T[] = [];
  let begun = 0;
  const makeSome = async (): Promise<void> => {
    while (begun < count) {
      const index = begun;
      begun += 1;
      made[index] = await make(index);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, makeSome));
  return made;
}

/** Counts the lines. Rejects if a line is missing, doubled or out of order. */
async function countLines(command: CommandHandle, signal: AbortSignal): Promise<number> {
  let next = 0;
  let rest = "";
  try {
    for await (const event of command.events({ signal })) {
      if (event.type !== "stdout") throw new Error(`a stream without end emitted ${event.type}`);
      const lines = (rest + event.text).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (!line.startsWith(`line ${next} `)) throw new Error(`line ${next} of a stream was ${JSON.stringify(line)}`);
        next += 1;
      }
    }
  } catch (error) {
    if (error !== signal.reason) throw error;
  }
  return next;
}

async function watch({ progress, signal }: Workbench, server: ServerProcess, forMs: number): Promise<Readings> {
  const readings: Readings = { delaysMs: [], memoryBytes: [] };
  const startMs = performance.now();
  for (let lookedMs = lookMs; lookedMs <= forMs; lookedMs += lookMs) {
    await sleep(Math.max(0, startMs + lookedMs - performance.now()), undefined, { signal });
    readings.memoryBytes.push(await server.memoryBytes());
    if (lookedMs % minuteMs === 0 || lookedMs === forMs) readings.delaysMs.push(await readDelay(server));
    const [delayMs = 0, bytes = 0] = [readings.delaysMs.at(-1), readings.memoryBytes.at(-1)];
    progress.report(`p99 ${delayMs.toFixed(0)} ms, ${(bytes / MiB).toFixed(0)} MiB`);
  }
  return readings;
}

/** Returns the p99 of the delays since the last call. */
async function readDelay(server: ServerProcess): Promise<number> {
  return (await server.metrics())("nodejs_eventloop_lag_p99_seconds") * 1000;
}

function range(bytes: readonly number[]): string {
  return [Math.min(...bytes), Math.max(...bytes)].map((end) => (end / MiB).toFixed(0)).join(" and ");
}

/**
 * Returns how far the lowest memory has risen. Memory goes up and down by a hundred mebibytes as garbage gathers and is
 * collected every few minutes; a leak shows in the lowest values.
 */
function growth(bytes: readonly number[]): number {
  const warm = bytes.slice(Math.ceil(bytes.length / 4));
  const half = Math.ceil(warm.length / 2);
  return Math.min(...warm.slice(half)) - Math.min(...warm.slice(0, half));
}
