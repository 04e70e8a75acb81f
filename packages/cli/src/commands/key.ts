import { keyVerbs, type KeyInfo, type KeyVerb } from "@atoll/protocol";
import { InvalidArgumentError, Option, type Command } from "commander";
import type { Cli } from "../cli.ts";
import { wholeNumber } from "../input/number.ts";
import { collect } from "../input/pair.ts";
import { resolvePrefix } from "../input/resolve-prefix.ts";
import { formatTime } from "../output/amount.ts";
import type { Column } from "../output/table.ts";
import { addHelpCommand, verb } from "./verb.ts";

interface CreateOptions {
  verb?: KeyVerb[];
  template?: string[];
  everySandbox?: boolean;
  maxSandboxes?: number;
  rate?: number;
}

export function keyCommand(cli: Cli): Command {
  const key = addHelpCommand(verb(cli, "key", "Make, list and revoke API keys"));
  key.addCommand(createKey(cli)).addCommand(listKeys(cli)).addCommand(revokeKey(cli));
  return key;
}

function createKey(cli: Cli): Command {
  return verb(cli, "create", "Make a key and print its secret, which is not stored anywhere", {
    examples: ["atoll key create ci", "atoll key create dashboard --verb read --verb events --every-sandbox"],
  })
    .argument("<name>", "what it is for")
    .addOption(
      new Option("--verb <verb>", "what it may do; may be repeated (default: all but admin, templates and metrics)")
        .choices(keyVerbs)
        .argParser((text, before: string[] | undefined) => collect(allowedVerb(text), before)),
    )
    .option("--template <name>", "only this template; may be repeated", collect)
    .option("--every-sandbox", "touch all sandboxes, not only those that it created")
    .option("--max-sandboxes <number>", "how many it may have at once", wholeNumber("a number", 0, 100_000))
    .option("--rate <number>", "requests per minute", wholeNumber("a number", 1, 10_000_000))
    .action(async (name: string, options: CreateOptions) => {
      const atoll = await cli.atoll();
      const creating = atoll.keys.create(
        {
          name,
          ownOnly: options.everySandbox !== true,
          ...(options.verb === undefined ? {} : { verbs: options.verb }),
          ...(options.template === undefined ? {} : { templates: options.template }),
          ...(options.maxSandboxes === undefined ? {} : { maxSandboxes: options.maxSandboxes }),
          ...(options.rate === undefined ? {} : { requestsPerMinute: options.rate }),
        },
        { signal: cli.signal },
      );
      const created = await cli.during("Making a key", creating);
      if (cli.isJson) {
        await cli.printJson(created);
        return;
      }
      await cli.print(created.secret);
      cli.note(`Key ${created.key.id} is made. Keep the secret now: it cannot be shown again.`);
    });
}

/** A parser of one's own takes the place of the one that looks at the choices. */
function allowedVerb(text: string): string {
  if (keyVerbs.some((verb) => verb === text)) return text;
  throw new InvalidArgumentError(`Allowed choices are ${keyVerbs.join(", ")}.`);
}

function listKeys(cli: Cli): Command {
  return verb(cli, "ls", "List the keys").action(async () => {
    const keys = await cli.during("Asking", (await cli.atoll()).keys.list({ signal: cli.signal }));
    if (cli.isJson) await cli.printJson({ keys });
    else await cli.printTable(columns, keys);
  });
}

function revokeKey(cli: Cli): Command {
  return verb(cli, "revoke", "Revoke keys, from now on")
    .argument("<keys...>", "their ids, or the beginnings of them")
    .action(async (words: string[]) => {
      const { keys } = await cli.atoll();
      const ids = (await cli.during("Looking for the keys", keys.list({ signal: cli.signal }))).map(({ id }) => id);
      const revoked = words.map((prefix) => resolvePrefix({ noun: "key", prefix, ids, listCommand: "atoll key ls" }));
      for (const id of revoked) await cli.during("Revoking", keys.revoke(id, { signal: cli.signal }));
      if (cli.isJson) await cli.printJson({ revoked });
      else await cli.write(revoked.map((id) => `${id}\n`).join(""));
    });
}

const columns: Column<KeyInfo>[] = [
  { header: "ID", cell: ({ id }) => id },
  { header: "NAME", cell: ({ name }) => name },
  { header: "SANDBOXES", cell: ({ ownOnly }) => (ownOnly ? "own" : "every") },
  {
    header: "LAST USED",
    cell: ({ lastUsedAtMs }) => (lastUsedAtMs === undefined ? "never" : formatTime(lastUsedAtMs)),
  },
  { header: "VERBS", cell: ({ verbs }) => verbs.join(",") },
];
