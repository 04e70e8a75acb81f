import { setTimeout as wait } from "node:timers/promises";
import { isSandboxError, type SandboxId } from "@atoll/protocol";
import { Sandbox, type Metrics, type MetricsHistory } from "@atoll/sdk";
import { Option, type Command } from "commander";
import type { Cli } from "../cli.ts";
import { parseDuration } from "../input/duration.ts";
import { findSandboxId, listSandboxes } from "../lookup/find-sandbox.ts";
import { formatDuration } from "../output/amount.ts";
import { LiveScreen } from "../output/live-screen.ts";
import { sparkline } from "../output/sparkline.ts";
import { bytesColumn, type Column } from "../output/table.ts";
import { verb } from "./verb.ts";

interface StatsOptions {
  stream: boolean;
  watch: boolean;
  interval: number;
}

interface Reading extends Metrics {
  id: string;
  /** Percent of one core since the reading before; absent at the first. */
  cpuPercent?: number;
  /** What the server has sampled over the last minutes; present with `--watch`. */
  history?: MetricsHistory;
}

/** The time between two readings where only one table is wanted: the CPU usage needs two. */
const oneShotMs = 300;

export function statsCommand(cli: Cli): Command {
  return verb(cli, "stats", "Show memory, CPU, processes and disk, continuously", {
    examples: ["atoll stats", "atoll stats --watch", "atoll stats 4k2 --interval 5s", "atoll stats --no-stream --json"],
  })
    .argument("[sandboxes...]", "their ids, or the beginnings of them; all running ones by default")
    .option("--no-stream", "show it once and exit")
    .option("--watch", "show also how CPU, memory and network were over the last minutes", false)
    .addOption(
      new Option("--interval <duration>", "the time between two readings: 500ms, 5s, 1m")
        .argParser(parseDuration)
        .default(1_000, "1s"),
    )
    .action(async (words: string[], options: StatsOptions) => {
      const named = await Promise.all(words.map((word) => findSandboxId(cli, word)));
      const shown: Columns = options.watch ? [...columns, ...historyColumns] : columns;
      const readAll: ReadAll = async (before) => read(cli, named, before, options.watch);
      if (options.stream) await follow(cli, shown, options.interval, readAll);
      else await show(cli, shown, await cli.during("Measuring", readTwice(cli, readAll)));
    });
}

type ReadAll = (before: readonly Reading[]) => Promise<Reading[]>;

type Columns = readonly Column<Reading>[];

async function readTwice(cli: Cli, readAll: ReadAll): Promise<Reading[]> {
  const first = await readAll([]);
  await wait(oneShotMs, undefined, { signal: cli.signal });
  return readAll(first);
}

async function follow(cli: Cli, shown: Columns, intervalMs: number, readAll: ReadAll): Promise<void> {
  using screen = cli.isTerminal && !cli.isJson ? new LiveScreen(cli.stdout) : undefined;
  let readings = await cli.during("Measuring", readTwice(cli, readAll));
  for (;;) {
    if (screen === undefined) await show(cli, shown, readings);
    else screen.draw(cli.renderTable(shown, readings));
    await wait(intervalMs, undefined, { signal: cli.signal });
    readings = await readAll(readings);
  }
}

async function show(cli: Cli, shown: Columns, readings: readonly Reading[]): Promise<void> {
  if (cli.isJson) await cli.printJson({ sandboxes: readings });
  else await cli.printTable(shown, readings);
}

/** Reads the usage. A sandbox that ended after it was listed is left out, unless it was asked for by name. */
async function read(
  cli: Cli,
  named: readonly SandboxId[],
  before: readonly Reading[],
  withHistory: boolean,
): Promise<Reading[]> {
  const client = await cli.atoll();
  const ids = named.length > 0 ? named : (await listSandboxes(cli, { state: "running" })).map(({ id }) => id);
  const readings = await Promise.all(
    ids.map(async (id): Promise<Reading[]> => {
      try {
        // `Sandbox.connect` is not used, because it would resume a paused one.
        const sandbox = new Sandbox(client, id);
        const [metrics, history] = await Promise.all([
          sandbox.getMetrics({ signal: cli.signal }),
          withHistory ? sandbox.getMetricsHistory({ signal: cli.signal }) : undefined,
        ]);
        return [
          {
            id,
            ...metrics,
            ...(history === undefined ? {} : { history }),
            ...cpuSince(
              before.find((reading) => reading.id === id),
              metrics,
            ),
          },
        ];
      } catch (error) {
        if (named.length > 0 || !isSandboxError(error)) throw error;
        return [];
      }
    }),
  );
  return readings.flat();
}

function cpuSince(before: Reading | undefined, now: Metrics): { cpuPercent?: number } {
  const elapsedMs = before === undefined ? 0 : now.readAtMs - before.readAtMs;
  if (before === undefined || elapsedMs <= 0)
    return before?.cpuPercent === undefined ? {} : { cpuPercent: before.cpuPercent };
  return { cpuPercent: Math.max(0, Math.round(((now.cpuMs - before.cpuMs) / elapsedMs) * 1_000) / 10) };
}

const columns: Column<Reading>[] = [
  { header: "ID", cell: ({ id }) => id },
  {
    header: "CPU",
    cell: ({ cpuPercent }) => (cpuPercent === undefined ? "-" : `${cpuPercent.toFixed(1)} %`),
    plain: ({ cpuPercent }) => (cpuPercent === undefined ? "-" : String(cpuPercent)),
    align: "right",
  },
  {
    header: "CPU TIME",
    cell: ({ cpuMs }) => formatDuration(cpuMs),
    plain: ({ cpuMs }) => String(cpuMs),
    align: "right",
  },
  bytesColumn("MEMORY", ({ memoryBytes }) => memoryBytes),
  bytesColumn("PEAK", ({ memoryPeakBytes }) => memoryPeakBytes),
  bytesColumn("DISK", ({ diskBytes }) => diskBytes),
  { header: "PROCESSES", cell: ({ processes }) => String(processes), align: "right" },
];

/** How many of the newest samples are drawn. */
const drawnSamples = 24;

/** Returns a column with a line of what each sample has. A program gets the last value: it has `--json` for all. */
function historyColumn(
  header: string,
  least: number,
  valuesOf: (history: MetricsHistory) => number[],
): Column<Reading> {
  const values = ({ history }: Reading): number[] => (history === undefined ? [] : valuesOf(history));
  return {
    header,
    cell: (reading) => sparkline(values(reading), { width: drawnSamples, least }),
    plain: (reading) => String(values(reading).at(-1) ?? "-"),
    isDetail: true,
  };
}

/** Returns how much a counter grew from each sample to the next. */
function growth(counts: readonly number[]): number[] {
  return counts.slice(1).map((count, index) => Math.max(0, count - (counts[index] ?? 0)));
}

const MiB = 1024 * 1024;

const historyColumns: Column<Reading>[] = [
  historyColumn("CPU, LAST", 0.1, ({ samples }) => samples.map(({ cpus }) => cpus)),
  historyColumn("MEMORY, LAST", 16 * MiB, ({ samples }) => samples.map(({ memoryBytes }) => memoryBytes)),
  historyColumn("NETWORK, LAST", 1024, ({ samples }) =>
    growth(samples.map(({ sentBytes, receivedBytes }) => sentBytes + receivedBytes)),
  ),
];
