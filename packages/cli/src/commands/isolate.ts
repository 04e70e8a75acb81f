import type { SandboxInfo } from "@atoll/protocol";
import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { findSandbox } from "../lookup/find-sandbox.ts";
import { verb } from "./verb.ts";

export function isolateCommand(cli: Cli): Command {
  return verb(cli, "isolate", "Cut a sandbox off from everything, and save or freeze it, until it is released", {
    examples: ['atoll isolate 4k2 --reason "it scans ports"', "atoll evidence 4k2", "atoll release 4k2"],
  })
    .argument("<sandbox>", "its id, or the beginning of it")
    .option("--reason <text>", "why, for the audit log and its owner")
    .action(async (word: string, { reason }: { reason?: string }) => {
      const sandbox = await findSandbox(cli, word);
      const info = await cli.during("Isolating", sandbox.isolate({ reason, signal: cli.signal }));
      await show(cli, info);
      if (info.isolated?.heldAs === "running") {
        cli.note("It could not be stopped: it runs on without network. Kill it, or see the log of the server.");
        cli.exitCode = 1;
      }
    });
}

export function releaseCommand(cli: Cli): Command {
  return verb(cli, "release", "End the isolation of a sandbox: its owner can use it again", {
    examples: ["atoll release 4k2"],
  })
    .argument("<sandbox>", "its id, or the beginning of it")
    .action(async (word: string) => {
      const sandbox = await findSandbox(cli, word);
      await show(cli, await cli.during("Releasing", sandbox.release({ signal: cli.signal })));
    });
}

async function show(cli: Cli, info: SandboxInfo): Promise<void> {
  if (cli.isJson) await cli.printJson(info);
  else await cli.print(info.id);
}
