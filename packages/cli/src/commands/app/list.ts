import type { Command } from "commander";
import { AppClient } from "../../app/app-client.ts";
import { AppRecords, leftBehind } from "../../app/app-records.ts";
import type { KnownApp } from "../../app/app-requests.ts";
import { toneOfAppState } from "../../app/state-tones.ts";
import type { Cli } from "../../cli.ts";
import { formatDuration } from "../../output/amount.ts";
import type { Column } from "../../output/table.ts";
import { verb } from "../verb.ts";

export function listApps(cli: Cli): Command {
  return verb(cli, "ls", "List apps, also those that were stopped or interrupted", {
    examples: ["atoll app ls", "atoll app rm $(atoll app ls -q)"],
  })
    .option("-q, --quiet", "print only the ids")
    .action(async ({ quiet }: { quiet?: boolean }) => {
      const apps = await knownApps(cli);
      if (cli.isJson) return cli.printJson({ apps });
      if (quiet === true) return cli.write(apps.map(({ id }) => `${id}\n`).join(""));
      if (apps.length === 0) return cli.note(`No apps. "atoll app create <folder>" starts one.`);
      await cli.printTable(columns(Date.now()), apps);
      const interrupted = apps.filter(({ state }) => state === "interrupted").map(({ id }) => id);
      if (interrupted.length === 0) return;
      cli.note(`"atoll app start ${interrupted.join(" ")}" goes on with the code that ran last.`);
    });
}

/** Without a manager no app runs, and the records on disk say what there was. */
async function knownApps(cli: Cli): Promise<KnownApp[]> {
  const client = new AppClient(cli);
  const apps = await cli.during("Asking", client.askIfRunning("list", {}));
  return apps ?? (await new AppRecords(client.directory).list()).map(leftBehind);
}

const columns = (nowMs: number): Column<KnownApp>[] => [
  { header: "ID", cell: ({ id }) => id },
  { header: "STATE", cell: ({ state }) => state, tone: ({ state }) => toneOfAppState(state) },
  { header: "ISOLATION", cell: ({ isolation }) => isolation },
  { header: "GENERATION", cell: ({ generation }) => String(generation), align: "right" },
  { header: "RESTARTS", cell: ({ restarts }) => String(restarts), align: "right", isDetail: true },
  {
    header: "CREATED",
    cell: ({ createdAt }) => `${formatDuration(nowMs - Date.parse(createdAt))} ago`,
    plain: ({ createdAt }) => createdAt,
    isDetail: true,
  },
  {
    header: "PORTS",
    cell: ({ ports }) => ports.map(({ port, host, hostPort }) => `${port}=${host}:${hostPort}`).join(",") || "-",
  },
  { header: "FOLDER", cell: ({ folder }) => folder, isDetail: true },
  { header: "REASON", cell: ({ reason }) => reason ?? "" },
];
