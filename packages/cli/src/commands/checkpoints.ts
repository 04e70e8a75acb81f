import type { ListedCheckpoint } from "@atoll/protocol";
import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { wholeNumber } from "../input/number.ts";
import { findSandbox } from "../lookup/find-sandbox.ts";
import { formatDuration, formatTime } from "../output/amount.ts";
import { bytesColumn, type Column } from "../output/table.ts";
import { verb } from "./verb.ts";

export function checkpointsCommand(cli: Cli): Command {
  return verb(cli, "checkpoints", "List the checkpoints of a sandbox, the oldest first", {
    examples: ["atoll checkpoints 4k2", "atoll checkpoints --remove 1 4k2"],
  })
    .argument("<sandbox>", "its id, or the beginning of it")
    .option(
      "-r, --remove <number>",
      "remove this one instead of listing, and what no other one needs",
      wholeNumber("the number of a checkpoint", 1, Number.MAX_SAFE_INTEGER),
    )
    .action(async (id: string, { remove }: { remove?: number }) => {
      const sandbox = await findSandbox(cli, id);
      if (remove !== undefined) {
        const removed = await cli.during("Removing", sandbox.deleteCheckpoint(remove, { signal: cli.signal }));
        if (cli.isJson) return cli.printJson({ removed });
        return cli.note(removed ? `Removed checkpoint ${remove}.` : `There was no checkpoint ${remove}.`);
      }
      const checkpoints = await cli.during("Asking", sandbox.checkpoints({ signal: cli.signal }));
      if (cli.isJson) await cli.printJson({ checkpoints });
      else if (checkpoints.length === 0) cli.note(`No checkpoints. "atoll pause ${sandbox.id}" makes one.`);
      else await cli.printTable(columns(Date.now()), checkpoints);
    });
}

function columns(nowMs: number): Column<ListedCheckpoint>[] {
  return [
    { header: "NUMBER", cell: ({ n }) => String(n), align: "right" },
    { header: "AFTER", cell: ({ parent }) => (parent === null ? "-" : String(parent)), align: "right" },
    {
      header: "CREATED",
      cell: ({ createdAtMs }) => `${formatDuration(nowMs - createdAtMs)} ago`,
      plain: ({ createdAtMs }) => formatTime(createdAtMs),
    },
    bytesColumn("ADDED", ({ sizeBytes }) => sizeBytes),
    bytesColumn("MEMORY", ({ memoryBytes }) => memoryBytes),
    bytesColumn("FILES", ({ filesBytes }) => filesBytes),
    {
      header: "WHERE",
      cell: ({ local, stored }) => [...(local ? ["server"] : []), ...(stored ? ["store"] : [])].join(", "),
    },
  ];
}
