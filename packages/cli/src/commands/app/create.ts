import { resolve } from "node:path";
import { Option, type Command } from "commander";
import { AppClient } from "../../app/app-client.ts";
import type { AppReplies, CreateOptions } from "../../app/app-requests.ts";
import { showingMistakes } from "../../app/code-mistakes.ts";
import { idOfFolder } from "../../app/folder-id.ts";
import { isolationLevels, isolationLine } from "../../app/isolation-levels.ts";
import type { Cli } from "../../cli.ts";
import { decimal, wholeNumber } from "../../input/number.ts";
import { collect, collectPairs, type Pairs } from "../../input/pair.ts";
import { parseSize } from "../../input/size.ts";
import { UsageError } from "../../input/usage-error.ts";
import { verb } from "../verb.ts";

interface CreateFlags {
  id?: string;
  isolation?: CreateOptions["isolation"];
  profile?: string;
  memory?: number;
  cpus?: number;
  processes?: number;
  env?: Pairs;
  port?: string[];
  autoReload?: boolean;
  typeCheck?: CreateOptions["typeCheck"];
}

export function createApp(cli: Cli): Command {
  return verb(cli, "create", "Start the app of a folder, which goes on after this command, and print its id", {
    examples: [
      "atoll app create examples/apps/chat",
      "atoll app create . --id shop --isolation gvisor --memory 256m --auto-reload",
    ],
  })
    .argument("<folder>", "the folder of the app")
    .option("--id <id>", "its name; by default that of the folder")
    .addOption(new Option("--isolation <level>", "how far it is kept from this machine").choices(isolationLevels))
    .option("--profile <name>", "the security profile, which bounds everything else")
    .option("-m, --memory <size>", "the most memory", parseSize)
    .option("--cpus <number>", "the most processor time, in cores", decimal("a number of cores"))
    .option("--processes <number>", "the most processes", wholeNumber("a number of processes", 1, 10_000))
    .option("-e, --env <name=value>", "a variable; may be repeated", collectPairs("a variable"))
    .option("-p, --port <port>", "a port that may be reached from here; may be repeated", collect)
    .option("--auto-reload", "reload it whenever a file changes")
    .addOption(new Option("--type-check <how>", "what type errors do").choices(["gate", "warn", "off"]))
    .action(async (folder: string, flags: CreateFlags) => {
      const id = flags.id ?? idOfFolder(folder);
      const request = {
        id: validId(id),
        folder: resolve(folder),
        options: optionsOf(flags),
        server: await cli.settings(),
      };
      const creating = new AppClient(cli).ask("create", request);
      await printStarted(cli, await cli.during("Starting", showingMistakes(cli, folder, creating)));
    });
}

export function startApps(cli: Cli): Command {
  return verb(cli, "start", "Start apps that do not run, with the code that ran last; their states begin again", {
    examples: ["atoll app start chat", "atoll app start chat --generation 3"],
  })
    .argument("<apps...>", "their ids")
    .option(
      "--generation <number>",
      "start with this one of the stored generations",
      wholeNumber("a generation", 1, Number.MAX_SAFE_INTEGER),
    )
    .action(async (ids: string[], { generation }: { generation?: number }) => {
      const server = await cli.settings();
      const client = new AppClient(cli);
      for (const id of ids) {
        const request = { id, server, ...(generation === undefined ? {} : { generation }) };
        await printStarted(cli, await cli.during(`Starting ${id}`, client.ask("start", request)));
      }
    });
}

async function printStarted(cli: Cli, { app, note }: AppReplies["create"]): Promise<void> {
  if (cli.isJson) return cli.printJson(app);
  if (note !== undefined) cli.note(note);
  cli.note(isolationLine(app));
  for (const { port, host, hostPort } of app.ports) cli.note(`port ${port} is ${host}:${hostPort}`);
  await cli.print(app.id);
}

/** Only what was given: the rest comes from `live.json`. */
function optionsOf(flags: CreateFlags): CreateOptions {
  const { memory, cpus, processes, env, port, isolation, profile, autoReload, typeCheck } = flags;
  const limits = given({ memoryBytes: memory, cpus, processes });
  const ports = port?.map(wholeNumber("a port", 1, 65_535));
  const options = given({ isolation, profile, env, ports, autoReload, typeCheck });
  return Object.keys(limits).length === 0 ? options : { ...options, limits };
}

function given<Options extends object>(options: Options): Partial<Options> {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as Partial<Options>;
}

function validId(id: string): string {
  if (/^[a-z0-9][a-z0-9_-]{0,63}$/.test(id)) return id;
  throw new UsageError(
    `Cannot read ${JSON.stringify(id)} as the id of an app`,
    "It has lower-case letters, digits, '_' and '-', at most 64.",
  );
}
