import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { wholeNumber } from "../input/number.ts";
import { findSandbox } from "../lookup/find-sandbox.ts";
import { verb } from "./verb.ts";

interface ForkOptions {
  count?: number;
  force?: boolean;
}

export function forkCommand(cli: Cli): Command {
  return verb(cli, "fork", "Make running copies of a sandbox, memory and files", {
    examples: ["atoll fork 4k2", "atoll fork --count 3 4k2"],
  })
    .argument("<sandbox>", "its id, or the beginning of it")
    .option("-n, --count <number>", "how many copies (default: 1)", wholeNumber("a number of copies", 1, 64))
    .option("-f, --force", "end the processes that cannot be copied")
    .action(async (id: string, options: ForkOptions) => {
      const sandbox = await findSandbox(cli, id);
      const copies = await cli.during("Forking", sandbox.fork({ ...options, signal: cli.signal }));
      if (cli.isJson) await cli.printJson({ sandboxes: copies.map((copy) => ({ id: copy.id, token: copy.token })) });
      else await cli.write(copies.map((copy) => `${copy.id}\n`).join(""));
    });
}
