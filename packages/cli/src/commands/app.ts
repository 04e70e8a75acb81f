import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { callApp } from "./app/call.ts";
import { checkApp } from "./app/check.ts";
import { createApp, startApps } from "./app/create.ts";
import { devApp } from "./app/dev.ts";
import { listApps } from "./app/list.ts";
import { logsOfApp } from "./app/logs.ts";
import { reloadApp } from "./app/reload.ts";
import { removeApps } from "./app/remove.ts";
import { rollBackApp } from "./app/rollback.ts";
import { showApp } from "./app/show.ts";
import { versionsOfApp } from "./app/versions.ts";
import { watchApps } from "./app/watch.ts";
import { addHelpCommand, verb } from "./verb.ts";

export function appCommand(cli: Cli): Command {
  const app = addHelpCommand(verb(cli, "app", "Run applications that are edited while they run"));
  const edit = [devApp, checkApp];
  const keep = [createApp, startApps, listApps, showApp, removeApps];
  const change = [reloadApp, rollBackApp, versionsOfApp];
  for (const make of [...edit, ...keep, ...change, callApp, logsOfApp, watchApps]) app.addCommand(make(cli));
  return app;
}
