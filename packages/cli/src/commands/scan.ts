import type { Diagnostic } from "@atoll/live";
import { builtInProfiles } from "@atoll/protocol";
import { Option, type Command } from "commander";
import { checkFormats, reportFor } from "../app/check-formats.ts";
import type { Cli } from "../cli.ts";
import { exitCodes } from "../exit-code.ts";
import { sourceFiles } from "../input/source-files.ts";
import { verb } from "./verb.ts";

interface ScanOptions {
  profile?: string;
  format?: "text" | "json" | "github";
}

export function scanCommand(cli: Cli): Command {
  const profiles = builtInProfiles.map(({ name }) => name);
  return verb(cli, "scan", "Find what JavaScript, TypeScript and Python can do beyond computing, without running it", {
    examples: ["atoll scan submission.py", "atoll scan src --profile medium --format github"],
  })
    .argument("<paths...>", "files, and folders with all below them but node_modules and hidden ones")
    .addOption(new Option("--profile <name>", "whose rules decide what is refused; high by default").choices(profiles))
    .addOption(new Option("--format <format>", "how findings are printed").choices(["text", "json", "github"]))
    .action(async (paths: string[], { profile: name = "high", format = "text" }: ScanOptions) => {
      const { decide, ProfileBook, scan } = await import("@atoll/guard");
      const { diagnosticOf } = await import("@atoll/live");
      const profile = new ProfileBook().get(name);
      let files = 0;
      const findings: object[] = [];
      const diagnostics: Diagnostic[] = [];
      const scanAll = async (): Promise<void> => {
        for await (const batch of sourceFiles(paths)) {
          files += batch.size;
          for (const finding of await scan(batch, cli.signal)) {
            const { file, severity } = finding;
            const isRefused = !decide({ operation: "code_load", profile, module: file, severity }).allowed;
            findings.push({ ...finding, isRefused });
            diagnostics.push(diagnosticOf(finding, batch.get(file) ?? "", isRefused ? "error" : "warning"));
          }
        }
      };
      await cli.during("Scanning", scanAll());
      const ok = diagnostics.every(({ severity }) => severity !== "error");
      if (cli.isJson || format === "json") await cli.printJson({ ok, profile: name, files, findings });
      else if (format === "github") await cli.write(diagnostics.map((each) => checkFormats.github("", each)).join(""));
      else await cli.write(reportFor(cli, "", diagnostics));
      const scanned = files === 1 ? "1 file was" : `${files} files were`;
      cli.note(`${scanned} scanned. Errors are what the profile ${name} refuses.`);
      if (!ok) cli.exitCode = exitCodes.failure;
    });
}
