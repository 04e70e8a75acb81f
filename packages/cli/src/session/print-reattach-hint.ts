import type { CommandInfo } from "@atoll/protocol";
import type { Cli } from "../cli.ts";

export function printReattachHint(cli: Cli, { sandboxId, id }: CommandInfo): void {
  cli.note(`\natoll: the command goes on; return to it with: atoll attach ${sandboxId} ${id}`);
}
