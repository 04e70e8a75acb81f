import { join } from "node:path";
import type { CachedSnapshot, SnapshotCache } from "@atoll/runner";
import { Option, type Command } from "commander";
import type { Cli } from "../cli.ts";
import { parseSize } from "../input/size.ts";
import { UsageError } from "../input/usage-error.ts";
import { formatBytes, formatTime } from "../output/amount.ts";
import { bytesColumn, type Column } from "../output/table.ts";
import { openClient } from "../runner/open-client.ts";
import { clientNames, type ClientName } from "../runner/runner-options.ts";
import { addHelpCommand, verb } from "./verb.ts";

interface CacheOptions {
  client: ClientName;
  keep?: number;
  all?: boolean;
}

/** The snapshots of environments and prepared repositories. */
export function cacheCommand(cli: Cli): Command {
  const cache = addHelpCommand(verb(cli, "cache", "List and remove the snapshots that task and swe start from"));
  return cache.addCommand(list(cli)).addCommand(prune(cli));
}

const clientOption = (): Option =>
  new Option("--client <name>", "whose snapshots").choices(clientNames).default("atoll" satisfies ClientName);

function list(cli: Cli): Command {
  return verb(cli, "ls", "List the snapshots, the one that was used last first")
    .addOption(clientOption())
    .action(async ({ client }: CacheOptions) => {
      await withCache(cli, client, async (cache) => {
        const snapshots = await cache.list(cli.signal);
        if (cli.isJson) await cli.printJson({ snapshots });
        else await cli.printTable(columns, snapshots);
      });
    });
}

function prune(cli: Cli): Command {
  return verb(cli, "prune", "Remove the snapshots that were not used for the longest time", {
    examples: ["atoll cache prune --keep 20g", "atoll cache prune --all"],
  })
    .addOption(clientOption())
    .option("--keep <size>", "how much may stay", parseSize)
    .option("--all", "keep none")
    .action(async ({ client, keep, all }: CacheOptions) => {
      if ((keep === undefined) !== (all === true)) {
        throw new UsageError("Cannot prune without knowing how much may stay", "Give either --keep <size> or --all.");
      }
      await withCache(cli, client, async (cache) => {
        const removed = await cache.prune(keep ?? 0, cli.signal);
        if (cli.isJson) return cli.printJson({ removed });
        await cli.printTable(columns, removed);
        cli.note(`${removed.length} removed, ${formatBytes(removed.reduce((sum, { bytes }) => sum + bytes, 0))} freed`);
      });
    });
}

async function withCache(cli: Cli, name: ClientName, use: (cache: SnapshotCache) => Promise<void>): Promise<void> {
  const { SnapshotCache } = await import("@atoll/runner");
  await using opened = await openClient(cli, name);
  const { snapshots } = opened.client;
  if (snapshots === undefined) return;
  await use(new SnapshotCache(snapshots, join(cli.environment.cacheDirectory, "runner")));
}

const columns: Column<CachedSnapshot>[] = [
  { header: "NAME", cell: ({ name }) => name },
  bytesColumn("SIZE", ({ bytes }) => bytes),
  { header: "LAST USED", cell: ({ lastUsedAtMs }) => formatTime(lastUsedAtMs) },
];
