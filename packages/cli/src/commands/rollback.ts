import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { wholeNumber } from "../input/number.ts";
import { findSandbox } from "../lookup/find-sandbox.ts";
import { formatDuration } from "../output/amount.ts";
import { verb } from "./verb.ts";

export function rollbackCommand(cli: Cli): Command {
  return verb(cli, "rollback", "Take a sandbox back to a checkpoint: memory, files and commands", {
    examples: ["atoll rollback 4k2 1", "atoll rollback --force 4k2 1"],
  })
    .argument("<sandbox>", "its id, or the beginning of it")
    .argument("<checkpoint>", "its number", wholeNumber("the number of a checkpoint", 1, Number.MAX_SAFE_INTEGER))
    .option("-f, --force", "end the processes that cannot be saved before the rollback")
    .action(async (id: string, checkpoint: number, { force }: { force?: boolean }) => {
      const sandbox = await findSandbox(cli, id);
      const result = await cli.during("Rolling back", sandbox.rollback(checkpoint, { force, signal: cli.signal }));
      if (cli.isJson) return cli.printJson(result);
      await cli.write(`${sandbox.id}\n`);
      const back = result.left === undefined ? "" : ` "atoll rollback ${sandbox.id} ${result.left}" undoes it.`;
      cli.note(`Rolled back to ${checkpoint} in ${formatDuration(result.totalMs)}.${back}`);
    });
}
