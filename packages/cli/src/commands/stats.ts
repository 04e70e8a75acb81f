import { setTimeout as wait } from "node:timers/promises";
import { isSandboxError, type SandboxId } from "@atoll/protocol";
import { Sandbox, type Metrics } from "@atoll/sdk";
import { Option, type Command } from "commander";
import type { Cli } from "../cli.ts";
import { parseDuration } from "../input/duration.ts";
import { findSandboxId, listSandboxes } from "../lookup/find-sandbox.ts";
import { formatDuration } from "../output/amount.ts";
import { LiveScreen } from "../output/live-screen.ts";
import { bytesColumn, type Column } from "../output/table.ts";
import { verb } from "./verb.ts";

interface StatsOptions {
  stream: boolean;
  interval: number;
}

interface Reading extends Metrics {
  id: string;
  /** Percent of one core since the reading before; absent at the first. */
  cpuPercent?: number;
}

/** The time between two readings where only one table is wanted: the CPU usage needs two. */
const oneShotMs = 300;

export function statsCommand(cli: Cli): Command {
  return verb(cli, "stats", "Show memory, CPU, processes and disk, continuously", {
    examples: ["atoll stats", "atoll stats 4k2 --interval 5s", "atoll stats --no-stream --json"],
  })
    .argument("[sandboxes...]", "their ids, or the beginnings of them; all running ones by default")
    .option("--no-stream", "show it once and exit")
    .addOption(
      new Option("--interval <duration>", "the time between two readings: 500ms, 5s, 1m")
        .argParser(parseDuration)
        .default(1_000, "1s"),
    )
    .action(async (words: string[], options: StatsOptions) => {
      const named = await Promise.all(words.map((word) => findSandboxId(cli, word)));
      const readAll = async (before: readonly Reading[]) => read(cli, named, before);
      if (options.stream) await follow(cli, options.interval, readAll);
      else await show(cli, await cli.during("Measuring", readTwice(cli, readAll)));
    });
}

async function readTwice(cli: Cli, readAll: (before: readonly Reading[]) => Promise<Reading[]>): Promise<Reading[]> {
  const first = await readAll([]);
  await wait(oneShotMs, undefined, { signal: cli.signal });
  return readAll(first);
}

async function follow(
  cli: Cli,
  intervalMs: number,
  readAll: (before: readonly Reading[]) => Promise<Reading[]>,
): Promise<void> {
  using screen = cli.isTerminal && !cli.isJson ? new LiveScreen(cli.stdout) : undefined;
  let readings = await cli.during("Measuring", readTwice(cli, readAll));
  for (;;) {
    if (screen === undefined) await show(cli, readings);
    else screen.draw(cli.renderTable(columns, readings));
    await wait(intervalMs, undefined, { signal: cli.signal });
    readings = await readAll(readings);
  }
}

async function show(cli: Cli, readings: readonly Reading[]): Promise<void> {
  if (cli.isJson) await cli.printJson({ sandboxes: readings });
  else await cli.printTable(columns, readings);
}

/** Reads the usage. A sandbox that ended after it was listed is left out, unless it was asked for by name. */
async function read(cli: Cli, named: readonly SandboxId[], before: readonly Reading[]): Promise<Reading[]> {
  const client = await cli.atoll();
  const ids = named.length > 0 ? named : (await listSandboxes(cli, { state: "running" })).map(({ id }) => id);
  const readings = await Promise.all(
    ids.map(async (id): Promise<Reading[]> => {
      try {
        // `Sandbox.connect` is not used, because it would resume a paused one.
        const metrics = await new Sandbox(client, id).getMetrics({ signal: cli.signal });
        return [
          {
            id,
            ...metrics,
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
