import { mkdir } from "node:fs/promises";
import { resolve } from "node:path";
import { unpack } from "@atoll/host";
import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { findSandbox } from "../lookup/find-sandbox.ts";
import { verb } from "./verb.ts";

export function evidenceCommand(cli: Cli): Command {
  return verb(cli, "evidence", "Save what is known about a sandbox: commands with output, checkpoints, audit log", {
    examples: ["atoll evidence 4k2", "atoll evidence 4k2 --output ./incident-7"],
  })
    .argument("<sandbox>", "its id, or the beginning of it")
    .option("-o, --output <directory>", "where to (default: evidence-<id>)")
    .action(async (word: string, { output }: { output?: string }) => {
      const sandbox = await findSandbox(cli, word);
      const directory = resolve(output ?? `evidence-${sandbox.id}`);
      const archive = await sandbox.evidence({ signal: cli.signal });
      await mkdir(directory, { recursive: true });
      const unpacking = unpack(archive, directory, { signal: cli.signal, onSkipped: () => undefined });
      const { files, bytes } = await cli.during("Saving the evidence", unpacking);
      if (cli.isJson) await cli.printJson({ directory, files, bytes });
      else await cli.print(directory);
    });
}
