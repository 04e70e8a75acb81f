import type { ApiEvent } from "@atoll/sdk";
import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { wholeNumber } from "../input/number.ts";
import { findSandboxId } from "../lookup/find-sandbox.ts";
import { formatTime } from "../output/amount.ts";
import { printable } from "../output/printable.ts";
import type { Tone } from "../output/style.ts";
import { verb } from "./verb.ts";

interface EventsOptions {
  from?: number;
  sandbox?: string;
}

export function eventsCommand(cli: Cli): Command {
  return verb(cli, "events", "Follow what happens on the server", {
    examples: [
      "atoll events",
      "atoll events --sandbox 4k2 --from 0",
      "atoll events --json | jq 'select(.type == \"egress.refused\")'",
    ],
  })
    .option(
      "--from <cursor>",
      "start behind the event with this cursor; 0 shows all that are kept",
      wholeNumber("a cursor", 0, Number.MAX_SAFE_INTEGER),
    )
    .option("--sandbox <sandbox>", "only events of this one: its id, or the beginning of it")
    .action(async (options: EventsOptions) => {
      const atoll = await cli.atoll();
      // The stream of events survives a restart of the server; a server that is missing from the start is reported at
      // once.
      await cli.during("Connecting", atoll.isReady({ signal: cli.signal }));
      const sandboxId = options.sandbox === undefined ? undefined : await findSandboxId(cli, options.sandbox);
      for await (const event of atoll.events({ cursor: options.from, sandboxId, signal: cli.signal })) {
        if (cli.isJson) await cli.printJson(event);
        else await cli.print(lineOf(cli, event));
      }
    });
}

/** Returns time, kind and sandbox of the event, and its other fields. */
function lineOf(cli: Cli, event: ApiEvent): string {
  const { cursor: _cursor, atMs, type, ...rest } = event;
  const { sandboxId, ...facts } = { sandboxId: "-", ...rest };
  const text = Object.entries(facts)
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([name, value]) => `${name}=${printable(typeof value === "string" ? value : JSON.stringify(value))}`);
  const separator = cli.isTerminal ? "  " : "\t";
  return [
    cli.style("quiet", formatTime(atMs)),
    cli.style(toneOf(type), printable(type)),
    printable(sandboxId),
    text.join(" "),
  ].join(separator);
}

function toneOf(type: ApiEvent["type"]): Tone {
  switch (type) {
    case "sandbox.isolated":
    case "limit.hit":
    case "limit.enforced":
    case "egress.refused":
    case "security.refused":
    case "command.lost":
    case "sandbox.lease_lost":
    case "events.lost":
      return "bad";
    case "limit.near":
    case "resource.left":
    case "sandbox.guest":
    case "sandbox.taken_over":
      return "busy";
    case "sandbox.state":
    case "sandbox.isolation_ended":
    case "sandbox.handed_over":
    case "sandbox.copy_dropped":
    case "sandbox.rolled_back":
    case "checkpoint.removed":
    case "command.started":
    case "command.ended":
    case "limit.eased":
    case "egress.allowed":
    case "snapshot.created":
    case "snapshot.removed":
      return "strong";
  }
}
