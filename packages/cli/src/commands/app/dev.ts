import { once } from "node:events";
import type { AppConfigInput } from "@atoll/live";
import { Option, type Command } from "commander";
import { openDevView } from "../../app/dev-view.ts";
import { idOfFolder } from "../../app/folder-id.ts";
import { isolationLevels } from "../../app/isolation-levels.ts";
import type { Cli } from "../../cli.ts";
import { verb } from "../verb.ts";

interface DevOptions {
  isolation?: AppConfigInput["isolation"];
  profile?: string;
}

export function devApp(cli: Cli): Command {
  return verb(cli, "dev", "Run the app of a folder, and reload it with its state whenever a file changes", {
    examples: ["atoll app dev examples/apps/chat", "atoll app dev . --isolation process --json"],
  })
    .argument("<folder>", "the folder of the app")
    .addOption(new Option("--isolation <level>", "how far it is kept from this machine").choices(isolationLevels))
    .option("--profile <name>", "the security profile, which bounds everything else")
    .action(async (folder: string, options: DevOptions) => {
      const { BubblewrapHost, LiveManager, ProcessHost } = await import("@atoll/live");
      const { ServerHost } = await import("../../app/server-host.ts");
      const server = new ServerHost(cli);
      server.use(await cli.settings());
      await using manager = new LiveManager({ hosts: [server, new BubblewrapHost(), new ProcessHost()] });
      const id = idOfFolder(folder);
      using view = openDevView(cli, async () => {
        const inspection = await manager.inspect(id).catch(() => undefined);
        return { info: manager.get(id), services: inspection?.services };
      });
      manager.onEvent((event) => view.take(event));
      try {
        await manager.create(id, folder, { ...options, autoReload: true });
      } catch (error) {
        // An app that cannot start stays there with its reason, and an edit may repair it.
        if (!manager.list().some((app) => app.id === id)) throw error;
      }
      view.begin(manager.get(id), server.note);
      if (!cli.signal.aborted) await once(cli.signal, "abort");
      cli.signal.throwIfAborted();
    });
}
