import { messageOf } from "@atoll/host";
import { isSandboxError } from "@atoll/protocol";
import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { exitCodes } from "../exit-code.ts";
import type { KeeperWord } from "../host/private-server.ts";
import { keepServer } from "../host/server-keeper.ts";
import { verb } from "./verb.ts";

/** For other commands, which start it when they need a server and there is none. */
export function keepServerCommand(cli: Cli): Command {
  return verb(cli, "keep-server", "Run a private server in a directory for as long as a client is connected")
    .argument("<directory>", "everything that it keeps")
    .action(async (directory: string) => {
      try {
        await keepServer(directory, cli.signal, () => void say(cli, { ready: true }));
      } catch (error) {
        await say(cli, { error: wordOf(error) });
        cli.exitCode = exitCodes.failure;
      }
    });
}

async function say(cli: Cli, word: KeeperWord): Promise<void> {
  await cli.print(JSON.stringify(word));
}

function wordOf(error: unknown): Extract<KeeperWord, { error: object }>["error"] {
  if (!isSandboxError(error)) return { code: "internal", message: messageOf(error) };
  const { code, message, suggestion } = error;
  return { code, message, ...(suggestion === undefined ? {} : { suggestion }) };
}
