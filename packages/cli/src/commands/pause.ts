import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { findSandbox } from "../lookup/find-sandbox.ts";
import { formatDuration } from "../output/amount.ts";
import { verb } from "./verb.ts";

export function pauseCommand(cli: Cli): Command {
  return verb(cli, "pause", "Save a sandbox with its running processes and free everything else", {
    examples: ["atoll pause 4k2", "atoll pause --force 4k2"],
  })
    .argument("<sandbox>", "its id, or the beginning of it")
    .option("-f, --force", "end the processes that cannot be saved")
    .action(async (id: string, { force }: { force?: boolean }) => {
      const sandbox = await findSandbox(cli, id);
      const paused = await cli.during("Pausing", sandbox.pause({ force, signal: cli.signal }));
      if (cli.isJson) return cli.printJson(paused);
      for (const { pid, command } of paused.ended) cli.note(`ended process ${pid}: ${command}`);
      await cli.write(`${sandbox.id}\n`);
      cli.note(`Paused in ${formatDuration(paused.totalMs)}. "atoll resume ${sandbox.id}" resumes it.`);
    });
}
