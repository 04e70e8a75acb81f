import type { Command } from "commander";
import { AppClient } from "../../app/app-client.ts";
import type { Cli } from "../../cli.ts";
import { wholeNumber } from "../../input/number.ts";
import { UsageError } from "../../input/usage-error.ts";
import { verb } from "../verb.ts";
import { printReload } from "./reload.ts";

interface RollbackOptions {
  generation?: number;
  module?: string;
  moduleVersion?: number;
}

export function rollBackApp(cli: Cli): Command {
  return verb(cli, "rollback", "Take a running app back to earlier code, with its state", {
    examples: [
      "atoll app rollback chat",
      "atoll app rollback chat --generation 2",
      "atoll app rollback chat --module src/texts.ts --module-version 1",
    ],
  })
    .argument("<app>", "its id")
    .option("--generation <number>", "to this one; by default the one before", wholeNumber("a generation", 1, 1e9))
    .option("--module <path>", "only this module, such as src/texts.ts")
    .option("--module-version <number>", "the version of the module", wholeNumber("a version", 1, 1e9))
    .action(async (id: string, options: RollbackOptions) => {
      const target = targetOf(options);
      const request = { id, ...(target === undefined ? {} : { target }) };
      await printReload(cli, await cli.during("Rolling back", new AppClient(cli).ask("rollback", request)));
    });
}

type Target = { generation: number } | { module: string; version: number };

function targetOf({ generation, module, moduleVersion }: RollbackOptions): Target | undefined {
  if (module === undefined && moduleVersion === undefined) return generation === undefined ? undefined : { generation };
  if (module !== undefined && moduleVersion !== undefined && generation === undefined) {
    return { module, version: moduleVersion };
  }
  throw new UsageError(
    "Cannot roll back: the target is not clear",
    "Give --generation, or --module together with --module-version.",
  );
}
