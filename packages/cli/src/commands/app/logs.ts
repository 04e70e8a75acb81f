import { SandboxError } from "@atoll/protocol";
import type { Command } from "commander";
import { AppClient } from "../../app/app-client.ts";
import { AppLog, entryOf, type LogEntry } from "../../app/app-log.ts";
import { AppRecords } from "../../app/app-records.ts";
import type { Cli } from "../../cli.ts";
import { wholeNumber } from "../../input/number.ts";
import { printable } from "../../output/printable.ts";
import { verb } from "../verb.ts";

interface LogsOptions {
  follow?: boolean;
  tail?: number;
}

export function logsOfApp(cli: Cli): Command {
  return verb(cli, "logs", "Show what an app has printed, and why its services and its process ended", {
    examples: ["atoll app logs chat", "atoll app logs -f --tail 10 chat"],
  })
    .argument("<app>", "its id")
    .option("-f, --follow", "go on with what it prints from now on")
    .option("--tail <lines>", "only the last of them", wholeNumber("a number of lines", 0, 1e9))
    .action(async (id: string, { follow, tail = Number.MAX_SAFE_INTEGER }: LogsOptions) => {
      const client = new AppClient(cli);
      await assertThere(client, id);
      const log = new AppLog(client.directory, id);
      const printStored = async (): Promise<void> => {
        const entries = await log.read();
        for (const entry of tail === 0 ? [] : entries.slice(-tail)) await print(cli, entry);
      };
      if (follow !== true) return printStored();
      for await (const event of client.watch([id])) {
        if (event === undefined) await printStored();
        else for (const entry of entriesOf(event)) await print(cli, entry);
      }
    });
}

function entriesOf(event: Parameters<typeof entryOf>[0]): LogEntry[] {
  const entry = entryOf(event);
  return entry === undefined ? [] : [entry];
}

async function assertThere(client: AppClient, id: string): Promise<void> {
  if ((await new AppRecords(client.directory).read(id)) !== undefined) return;
  throw new SandboxError("not_found", `There is no app ${id}`, { suggestion: `"atoll app ls" lists the apps.` });
}

async function print(cli: Cli, entry: LogEntry): Promise<void> {
  if (cli.isJson) return cli.printJson(entry);
  const { at, level, service = "-", text } = entry;
  const lines = text.split("\n").map((line) => line.split("\t").map(printable).join("\t"));
  for (const line of lines) {
    const shown = level === "log" ? line : cli.style(level === "error" ? "bad" : "busy", line);
    await cli.print([cli.style("quiet", at), printable(service), shown].join(cli.isTerminal ? "  " : "\t"));
  }
}
