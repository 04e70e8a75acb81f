import { DriverName, keyVerbs, type AccessPolicy, type KeyInfo, type KeyVerb } from "@atoll/protocol";
import { InvalidArgumentError, Option, type Command } from "commander";
import type { Cli } from "../cli.ts";
import { decimal, wholeNumber } from "../input/number.ts";
import { collect } from "../input/pair.ts";
import { resolvePrefix } from "../input/resolve-prefix.ts";
import { parseSize } from "../input/size.ts";
import { formatBytes, formatTime } from "../output/amount.ts";
import type { Column } from "../output/table.ts";
import { addHelpCommand, verb } from "./verb.ts";

interface CreateOptions {
  verb?: KeyVerb[];
  template?: string[];
  everySandbox?: boolean;
  profile?: string;
  weakestProfile?: string;
  driver?: DriverName[];
  egress?: string[];
  denyEgress?: string[];
  maxMemory?: number;
  maxCpus?: number;
  maxDisk?: number;
  maxTmp?: number;
  maxProcesses?: number;
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
    examples: [
      "atoll key create ci",
      "atoll key create dashboard --verb read --verb events --every-sandbox",
      "atoll key create small --max-memory 512m --max-cpus 1 --max-sandboxes 3",
      "atoll key create untrusted --profile high --weakest-profile medium",
      "atoll key create database --egress '*' --egress 10.1.0.0/16:5432",
    ],
  })
    .argument("<name>", "what it is for")
    .addOption(
      new Option("--verb <verb>", "what it may do; may be repeated (default: all but admin, templates and metrics)")
        .choices(keyVerbs)
        .argParser((text, before: string[] | undefined) => collect(oneOf(keyVerbs, text), before)),
    )
    .option("--template <name>", "only this template; may be repeated", collect)
    .option("--every-sandbox", "use all sandboxes, not only those that it created")
    .option("--profile <name>", 'the security profile where none is named; "atoll profile ls" lists them')
    .option("--weakest-profile <name>", "every sandbox has this profile or one that is at least as strict")
    .addOption(
      new Option("--driver <name>", "a driver that it may use; may be repeated (default: gvisor)")
        .choices(DriverName.options)
        .argParser((text, before: string[] | undefined) => collect(oneOf(DriverName.options, text), before)),
    )
    .option(
      "--egress <rule>",
      "what its sandboxes may be allowed to reach; may be repeated (default: *, the internet)",
      collect,
    )
    .option("--deny-egress <rule>", "except this; may be repeated", collect)
    .option("--max-memory <size>", "the most memory of one sandbox, such as 512m", parseSize)
    .option("--max-cpus <number>", "the most cores' worth of time of one sandbox", decimal("a number of cores"))
    .option("--max-disk <size>", "the most that the files of one sandbox may grow", parseSize)
    .option("--max-tmp <size>", "the largest /tmp of one sandbox", parseSize)
    .option(
      "--max-processes <number>",
      "the most processes and threads of one sandbox",
      wholeNumber("a number of processes", 8, 100_000),
    )
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
          policy: policyFrom(options),
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

/** Checks a choice; Commander's own check is replaced by a custom parser. */
function oneOf(choices: readonly string[], text: string): string {
  if (choices.includes(text)) return text;
  throw new InvalidArgumentError(`Allowed choices are ${choices.join(", ")}.`);
}

/** Options that are not given are left to the server. */
function policyFrom(options: CreateOptions): AccessPolicy {
  const { driver, egress, denyEgress } = options;
  const hasEgress = egress !== undefined || denyEgress !== undefined;
  return {
    ...(options.profile === undefined ? {} : { profile: options.profile }),
    ...(options.weakestProfile === undefined ? {} : { weakestProfile: options.weakestProfile }),
    ...(driver === undefined ? {} : { drivers: driver }),
    ...(hasEgress ? { egress: { allow: egress ?? ["*"], deny: denyEgress ?? [] } } : {}),
    limits: {
      ...(options.maxMemory === undefined ? {} : { memoryBytes: options.maxMemory }),
      ...(options.maxCpus === undefined ? {} : { cpus: options.maxCpus }),
      ...(options.maxDisk === undefined ? {} : { diskBytes: options.maxDisk }),
      ...(options.maxTmp === undefined ? {} : { tmpBytes: options.maxTmp }),
      ...(options.maxProcesses === undefined ? {} : { processes: options.maxProcesses }),
      ...(options.maxSandboxes === undefined ? {} : { sandboxes: options.maxSandboxes }),
    },
  };
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
  { header: "PROFILE", cell: ({ policy }) => profileCell(policy), isDetail: true },
  { header: "DRIVERS", cell: ({ policy }) => policy.drivers?.join(",") ?? asServer, isDetail: true },
  { header: "EGRESS", cell: ({ policy }) => egressCell(policy), isDetail: true },
  { header: "LIMITS", cell: ({ policy }) => limitsCell(policy), isDetail: true },
];

const asServer = "as the server";

function profileCell({ profile = asServer, weakestProfile }: AccessPolicy): string {
  return weakestProfile === undefined
    ? profile
    : `${profile === asServer ? weakestProfile : profile}>=${weakestProfile}`;
}

function egressCell({ egress }: AccessPolicy): string {
  if (egress === undefined) return asServer;
  return [...egress.allow, ...egress.deny.map((rule) => `!${rule}`)].join(",") || "nothing";
}

function limitsCell({ limits }: AccessPolicy): string {
  const text = Object.entries(limits).map(([name, value = 0]) =>
    name.endsWith("Bytes") ? `${name.slice(0, -"Bytes".length)}=${formatBytes(value)}` : `${name}=${value}`,
  );
  return text.join(",") || asServer;
}
