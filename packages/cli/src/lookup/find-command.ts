import type { CommandInfo } from "@atoll/protocol";
import type { Sandbox } from "@atoll/sdk";
import type { Cli } from "../cli.ts";
import { resolvePrefix } from "../input/resolve-prefix.ts";

/** Finds a command by its name (the latest that has it), its id, or the beginning of its id. */
export async function findCommand(cli: Cli, sandbox: Sandbox, nameOrId: string): Promise<CommandInfo> {
  const commands = await cli.during("Looking for the command", sandbox.commands.list({ signal: cli.signal }));
  const [named] = commands
    .filter(({ name }) => name === nameOrId)
    .toSorted((one, other) => other.startedAtMs - one.startedAtMs);
  if (named !== undefined) return named;
  const id = resolvePrefix({
    noun: "command",
    prefix: nameOrId,
    ids: commands.map((command) => command.id),
    listCommand: `atoll ps ${sandbox.id}`,
  });
  const found = commands.find((command) => command.id === id);
  if (found === undefined) throw new Error(`The command ${id} was just listed and is missing`);
  return found;
}
