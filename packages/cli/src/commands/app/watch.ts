import type { Command } from "commander";
import { AppClient } from "../../app/app-client.ts";
import { linesOf } from "../../app/event-lines.ts";
import type { Cli } from "../../cli.ts";
import { printable } from "../../output/printable.ts";
import { verb } from "../verb.ts";

export function watchApps(cli: Cli): Command {
  return verb(cli, "watch", "Follow what happens to apps", {
    examples: ["atoll app watch", "atoll app watch chat --json | jq 'select(.type == \"reload.end\")'"],
  })
    .argument("[apps...]", "their ids; all of them by default")
    .action(async (ids: string[]) => {
      for await (const event of new AppClient(cli).watch(ids)) {
        if (event === undefined) continue;
        if (cli.isJson) await cli.printJson(event);
        else for (const line of linesOf(event)) await cli.print([event.app, ...line].map(printable).join("\t"));
      }
      cli.note("The manager of the apps has ended, and the apps with it.");
    });
}
