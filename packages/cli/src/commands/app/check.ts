import { Option, type Command } from "commander";
import { checkFormats, reportFor } from "../../app/check-formats.ts";
import type { Cli } from "../../cli.ts";
import { exitCodes } from "../../exit-code.ts";
import { verb } from "../verb.ts";

export function checkApp(cli: Cli): Command {
  return verb(cli, "check", "Compile and scan the app of a folder and report what is found, without running it", {
    examples: ["atoll app check .", "atoll app check examples/apps/chat --format github"],
  })
    .argument("<folder>", "the folder of the app")
    .addOption(new Option("--format <format>", "for programs that read it").choices(Object.keys(checkFormats)))
    .action(async (folder: string, { format }: { format?: keyof typeof checkFormats }) => {
      const live = await import("@atoll/live");
      const { ok, diagnostics } = await cli.during("Compiling", live.checkApp(folder));
      if (cli.isJson || format === "json") await cli.printJson({ ok, diagnostics });
      else if (format !== undefined)
        await cli.write(diagnostics.map((each) => checkFormats[format](folder, each)).join(""));
      else await cli.write(reportFor(cli, folder, diagnostics));
      if (!ok) cli.exitCode = exitCodes.failure;
    });
}
