import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { findSandbox } from "../lookup/find-sandbox.ts";
import { formatDuration } from "../output/amount.ts";
import { verb } from "./verb.ts";

export function resumeCommand(cli: Cli): Command {
  return verb(cli, "resume", "Resume a paused sandbox with its processes, or a failed one on its files", {
    examples: ["atoll resume 4k2", "atoll resume --no-memory 4k2"],
  })
    .argument("<sandbox>", "its id, or the beginning of it")
    .option("--no-memory", "restart it on its files; its processes are lost")
    .action(async (id: string, { memory }: { memory: boolean }) => {
      const sandbox = await findSandbox(cli, id);
      const resumed = await cli.during("Resuming", sandbox.resume({ memory, signal: cli.signal }));
      if (cli.isJson) return cli.printJson(resumed);
      await cli.write(`${sandbox.id}\n`);
      const from = resumed.checkpoint === undefined ? "its files" : `checkpoint ${resumed.checkpoint}`;
      cli.note(`Resumed from ${from} in ${formatDuration(resumed.totalMs)}.`);
    });
}
