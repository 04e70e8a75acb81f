import type { SandboxInfo, TakenOver } from "@atoll/protocol";
import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { findSandbox } from "../lookup/find-sandbox.ts";
import { formatDuration, formatTime } from "../output/amount.ts";
import { bytesFact, printFacts, type Fact } from "../output/facts.ts";
import { verb } from "./verb.ts";

export function infoCommand(cli: Cli): Command {
  return verb(cli, "info", "Show everything about one sandbox", {
    examples: ["atoll info 4k2", "atoll info --json 4k2"],
  })
    .argument("<sandbox>", "its id, or the beginning of it")
    .action(async (id: string) => {
      const sandbox = await findSandbox(cli, id);
      const info = await cli.during("Asking", sandbox.getInfo({ signal: cli.signal }));
      if (cli.isJson) await cli.printJson(info);
      else await printFacts(cli, settingsOf(info, Date.now()));
    });
}

function settingsOf(info: SandboxInfo, nowMs: number): Fact[] {
  const { limits, timeouts, egress, takenOver } = info;
  const end = timeouts.onTimeout === "pause" ? "paused" : "killed";
  const idle = timeouts.idleMs === undefined ? "it stays" : `${end} after ${formatDuration(timeouts.idleMs)}`;
  const ends = info.endsAtMs === undefined ? "never" : `${formatTime(info.endsAtMs)} (${end})`;
  return [
    ["id", info.id],
    ["state", info.guest === undefined ? info.state : `${info.state}, ${info.guest}`],
    ["reason", info.reason === undefined ? undefined : `${info.reason.kind}: ${info.reason.message}`],
    ["profile", info.profile],
    ["template", info.template],
    ["driver", info.driver],
    ["created", `${formatTime(info.createdAtMs)} (${formatDuration(nowMs - info.createdAtMs)} ago)`],
    ["ends", ends],
    ["when idle", idle],
    ["owner", info.owner],
    ["held by", info.heldBy],
    ["persistent", info.persistent ? "yes" : undefined],
    ["server", info.server === undefined ? undefined : `${info.server.id} ${info.server.url}`.trim()],
    ["taken over", takenOver === undefined ? undefined : howTakenOver(takenOver)],
    ["checkpoint", info.checkpoint === undefined ? undefined : String(info.checkpoint)],
    ["rolled back", info.rollbacks === undefined ? undefined : `${info.rollbacks} times`],
    ["running commands", String(info.runningCommands)],
    bytesFact("memory", limits.memoryBytes),
    ["cpus", String(limits.cpus)],
    bytesFact("disk", limits.diskBytes),
    ["processes", String(limits.processes)],
    ["may reach", egress.allow.length === 0 ? "nothing" : egress.allow.join(", ")],
    ["but not", egress.deny.length === 0 ? undefined : egress.deny.join(", ")],
    ...Object.entries(info.labels).map(([name, value]): Fact => [`label ${name}`, value]),
  ];
}

function howTakenOver({ fromServer, checkpoint, createdAtMs, takenAtMs }: TakenOver): string {
  return `${formatTime(takenAtMs)} from ${fromServer.id}, as of checkpoint ${checkpoint} of ${formatTime(createdAtMs)}`;
}
