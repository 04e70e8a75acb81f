import { SandboxError } from "@atoll/protocol";
import type { Command } from "commander";
import { AppClient } from "../../app/app-client.ts";
import { AppRecords, leftBehind } from "../../app/app-records.ts";
import type { AppDetails } from "../../app/app-requests.ts";
import { isolationLine } from "../../app/isolation-levels.ts";
import { serviceColumns } from "../../app/service-table.ts";
import type { Cli } from "../../cli.ts";
import { formatDuration } from "../../output/amount.ts";
import { bytesFact, printFacts, type Fact } from "../../output/facts.ts";
import { verb } from "../verb.ts";

export function showApp(cli: Cli): Command {
  return verb(cli, "info", "Show everything about one app", { examples: ["atoll app info chat"] })
    .argument("<app>", "its id")
    .action(async (id: string) => {
      const details = await cli.during("Asking", detailsOf(cli, id));
      if (cli.isJson) return cli.printJson({ ...details.app, ...details.running });
      await printFacts(cli, factsOf(details, Date.now()));
      if (details.running === undefined) return;
      await cli.print("");
      await cli.printTable(serviceColumns, details.running.services);
    });
}

async function detailsOf(cli: Cli, id: string): Promise<AppDetails> {
  const client = new AppClient(cli);
  const details = await client.askIfRunning("inspect", { id });
  if (details !== undefined) return details;
  const record = await new AppRecords(client.directory).read(id);
  if (record !== undefined) return { app: leftBehind(record) };
  throw new SandboxError("not_found", `There is no app ${id}`, { suggestion: `"atoll app ls" lists the apps.` });
}

function factsOf({ app, running }: AppDetails, nowMs: number): Fact[] {
  const { lastRestart } = app;
  return [
    ["id", app.id],
    ["state", app.state],
    ["reason", app.reason],
    ["folder", app.folder],
    ["isolation", isolationLine(app).replace("isolation ", "")],
    ["profile", app.profile === "" ? undefined : app.profile],
    ["generation", String(app.generation)],
    ["last good", app.lastGood === 0 ? undefined : String(app.lastGood)],
    ["auto-reload", app.autoReload ? "on" : "off"],
    ["created", `${app.createdAt} (${formatDuration(nowMs - Date.parse(app.createdAt))} ago)`],
    ["restarts", String(app.restarts)],
    ["last restart", lastRestart === undefined ? undefined : `${lastRestart.at}: ${lastRestart.reason}`],
    ...app.ports.map(({ port, host, hostPort }): Fact => [`port ${port}`, `${host}:${hostPort}`]),
    ...(running === undefined
      ? []
      : [
          bytesFact("memory", running.memoryBytes),
          ["cpu time", formatDuration(running.cpuMs)] as const,
          ["processes", String(running.processes)] as const,
        ]),
  ];
}
