import { isSandboxError } from "@atoll/protocol";
import { Argument, type Command } from "commander";
import type { Cli } from "../cli.ts";
import { readStdin } from "../input/read-within.ts";
import { UsageError } from "../input/usage-error.ts";
import type { Column } from "../output/table.ts";
import { credentialNames, readCredentials, writeCredentials, type CredentialName } from "../settings/credentials.ts";
import type { Settings } from "../settings/settings.ts";
import { addHelpCommand, verb } from "./verb.ts";

interface Row {
  name: string;
  value: string;
  source: string;
}

export function configCommand(cli: Cli): Command {
  const config = verb(cli, "config", "Show the settings here and on the server, and where each comes from", {
    examples: [
      "atoll config",
      "atoll config set url https://atoll.example.com",
      "atoll config set key - < key.txt",
      "atoll config unset key",
    ],
  });
  addHelpCommand(config).action(async () => {
    const client = rowsOfClient(await cli.settings());
    const server = await serverConfig(cli);
    if (cli.isJson) {
      const own = Object.fromEntries(client.map(({ name, value, source }) => [name, { value, source }]));
      await cli.printJson({ client: own, file: cli.environment.credentialsPath, ...server });
      return;
    }
    await cli.printTable(columns, [...client, ...rowsOfServer(server.server)]);
    if (server.server === undefined) cli.note(`The server's settings are not shown: ${server.because}`);
  });
  return config.addCommand(setConfig(cli)).addCommand(unsetConfig(cli));
}

const columns: Column<Row>[] = [
  { header: "SETTING", cell: ({ name }) => name },
  { header: "FROM", cell: ({ source }) => source },
  { header: "VALUE", cell: ({ value }) => value },
];

function rowsOfClient({ url, key }: Settings): Row[] {
  return [
    { name: "url", value: url.value ?? "", source: url.source },
    { name: "key", value: key.value === undefined ? "(none)" : hidden(key.value), source: key.source },
  ];
}

/** Shows enough of a key to recognise it, and too little to use it. */
function hidden(key: string): string {
  return `${key.slice(0, 6)}…`;
}

type ServerConfig = { server: Record<string, unknown> } | { server?: undefined; because: string };

async function serverConfig(cli: Cli): Promise<ServerConfig> {
  try {
    return { server: await cli.during("Asking", (await cli.atoll()).getConfig({ signal: cli.signal })) };
  } catch (error) {
    if (!isSandboxError(error)) throw error;
    return { because: error.message };
  }
}

function rowsOfServer(server: Record<string, unknown> | undefined): Row[] {
  const settings = server?.["settings"];
  if (typeof settings !== "object" || settings === null) return [];
  return Object.entries(settings as Record<string, { value: unknown; from: string }>).map(
    ([name, { value, from }]) => ({
      name: `server.${name}`,
      value:
        value === null || value === undefined ? "(none)" : typeof value === "string" ? value : JSON.stringify(value),
      source: from,
    }),
  );
}

function nameArgument(): Argument {
  return new Argument("<name>", "url or key").choices(credentialNames);
}

function setConfig(cli: Cli): Command {
  return verb(cli, "set", "Store the server's URL or the key, readable only by you")
    .addArgument(nameArgument())
    .argument("<value>", "its value, or - to read it from stdin, so that it is not in the shell's history")
    .action(async (name: CredentialName, given: string) => {
      const value = given === "-" ? await firstLine(cli) : given;
      if (name === "url" && !URL.canParse(value)) {
        throw new UsageError(`Cannot use ${JSON.stringify(value)} as a URL`, "Write it as http://127.0.0.1:4600.");
      }
      if (value === "")
        throw new UsageError(`Cannot store an empty ${name}`, `"atoll config unset ${name}" removes it.`);
      const path = cli.environment.credentialsPath;
      await writeCredentials(path, { ...(await readCredentials(path)), [name]: value });
      if (cli.isJson) await cli.printJson({ stored: name, file: path });
      else cli.note(`Stored in ${path}`);
    });
}

function unsetConfig(cli: Cli): Command {
  return verb(cli, "unset", "Remove a stored value")
    .addArgument(nameArgument())
    .action(async (name: CredentialName) => {
      const path = cli.environment.credentialsPath;
      const { [name]: _removed, ...rest } = await readCredentials(path);
      await writeCredentials(path, rest);
      if (cli.isJson) await cli.printJson({ removed: name, file: path });
    });
}

async function firstLine(cli: Cli): Promise<string> {
  const given = await readStdin(cli, { maxBytes: 1024 * 1024, hint: "Only its first line is stored." });
  return (given.toString("utf8").split("\n")[0] ?? "").trim();
}
