import { Sandbox } from "@atoll/sdk";
import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { exitCodes } from "../exit-code.ts";
import { UsageError } from "../input/usage-error.ts";
import { findSandboxId, listSandboxes } from "../lookup/find-sandbox.ts";
import { confirm } from "../terminal/confirm.ts";
import { verb } from "./verb.ts";

interface KillOptions {
  all?: boolean;
  yes?: boolean;
}

export function killCommand(cli: Cli): Command {
  return verb(cli, "kill", "End sandboxes and remove everything of them", {
    examples: ["atoll kill 4k2", "atoll kill 4k2 9fa", "atoll kill --all --yes"],
  })
    .argument("[sandboxes...]", "their ids, or the beginnings of them")
    .option("-a, --all", "every sandbox that the key may see")
    .option("-y, --yes", "do not ask")
    .action(async (words: string[], options: KillOptions) => {
      const ids = await chosen(cli, words, options);
      const results = await cli.during(
        `Killing ${ids.length === 1 ? "a sandbox" : `${ids.length} sandboxes`}`,
        killAll(cli, ids),
      );
      if (cli.isJson) await cli.printJson({ sandboxes: results });
      else
        await cli.write(
          results
            .filter(({ killed }) => killed)
            .map(({ id }) => `${id}\n`)
            .join(""),
        );
      for (const { id, killed, error } of results) {
        if (error !== undefined) cli.note(`${id}: ${error}`);
        else if (!killed) cli.note(`${id}: it was gone already`);
      }
      if (results.some(({ error }) => error !== undefined)) cli.exitCode = exitCodes.failure;
    });
}

async function chosen(cli: Cli, words: readonly string[], options: KillOptions): Promise<string[]> {
  if (options.all !== true) {
    if (words.length === 0)
      throw new UsageError("Cannot kill: no sandbox was given", "Name one or more, or give --all.");
    return [...new Set(await Promise.all(words.map((word) => findSandboxId(cli, word))))];
  }
  if (words.length > 0) throw new UsageError("Cannot kill: --all was given with ids", "Give one or the other.");
  const ids = (await cli.during("Listing sandboxes", listSandboxes(cli))).map(({ id }) => id);
  if (ids.length === 0 || options.yes === true) return ids;
  const agreed = await confirm(cli, `Kill ${ids.length === 1 ? "1 sandbox" : `${ids.length} sandboxes`}?`, "--yes");
  return agreed ? ids : [];
}

interface Killed {
  id: string;
  killed: boolean;
  error?: string;
}

/** Kills all of them; a failure for one does not keep the others alive. */
async function killAll(cli: Cli, ids: readonly string[]): Promise<Killed[]> {
  const client = await cli.atoll();
  return Promise.all(
    ids.map(async (id): Promise<Killed> => {
      try {
        return { id, killed: await Sandbox.kill(id, { client, signal: cli.signal }) };
      } catch (error) {
        cli.signal.throwIfAborted();
        return { id, killed: false, error: error instanceof Error ? error.message : String(error) };
      }
    }),
  );
}
