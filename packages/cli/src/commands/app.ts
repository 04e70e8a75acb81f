import { once } from "node:events";
import { basename, resolve } from "node:path";
import type { AppConfigInput } from "@atoll/live";
import { Option, type Command } from "commander";
import { checkFormats, reportFor } from "../app/check-formats.ts";
import { openDevView } from "../app/dev-view.ts";
import type { Cli } from "../cli.ts";
import { exitCodes } from "../exit-code.ts";
import { addHelpCommand, verb } from "./verb.ts";

interface DevOptions {
  isolation?: AppConfigInput["isolation"];
}

const levels = ["strongest", "gvisor", "bubblewrap", "process"] as const;

export function appCommand(cli: Cli): Command {
  const app = addHelpCommand(verb(cli, "app", "Run applications that are edited while they run"));
  return app.addCommand(devCommand(cli)).addCommand(checkCommand(cli));
}

function devCommand(cli: Cli): Command {
  return verb(cli, "dev", "Run the app of a folder, and reload it with its state whenever a file changes", {
    examples: ["atoll app dev examples/apps/chat", "atoll app dev . --isolation process --json"],
  })
    .argument("<folder>", "the folder of the app")
    .addOption(new Option("--isolation <level>", "how far it is kept from this machine").choices(levels))
    .action(async (folder: string, options: DevOptions) => {
      const { LiveManager } = await import("@atoll/live");
      await using manager = new LiveManager();
      const id = idOf(folder);
      using view = openDevView(cli, async () => (await manager.inspect(id)).services);
      manager.onEvent((event) => view.take(event));
      try {
        await manager.create(id, folder, { ...options, autoReload: true });
      } catch (error) {
        // An app that cannot start stays there with its reason, and an edit may repair it.
        if (!manager.list().some((app) => app.id === id)) throw error;
      }
      view.begin(manager.get(id));
      if (!cli.signal.aborted) await once(cli.signal, "abort");
      cli.signal.throwIfAborted();
    });
}

function checkCommand(cli: Cli): Command {
  return verb(cli, "check", "Compile the app of a folder and report its mistakes, without running it", {
    examples: ["atoll app check .", "atoll app check examples/apps/chat --format github"],
  })
    .argument("<folder>", "the folder of the app")
    .addOption(new Option("--format <format>", "for programs that read it").choices(Object.keys(checkFormats)))
    .action(async (folder: string, { format }: { format?: keyof typeof checkFormats }) => {
      const { compileApp } = await import("@atoll/live");
      const { ok, diagnostics } = await cli.during("Compiling", compileApp(folder));
      if (cli.isJson || format === "json") await cli.printJson({ ok, diagnostics });
      else if (format !== undefined)
        await cli.write(diagnostics.map((each) => checkFormats[format](folder, each)).join(""));
      else await cli.write(reportFor(cli, folder, diagnostics));
      if (!ok) cli.exitCode = exitCodes.failure;
    });
}

/** The name of the folder, as far as an id may have its characters. */
function idOf(folder: string): string {
  const name = basename(resolve(folder)).toLowerCase();
  return (
    name
      .replaceAll(/[^a-z0-9_-]/g, "-")
      .replace(/^[^a-z0-9]+/, "")
      .slice(0, 64) || "app"
  );
}
