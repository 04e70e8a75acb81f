import { isSandboxError, SandboxError } from "@atoll/protocol";
import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { parsePlace } from "../input/place.ts";
import { UsageError } from "../input/usage-error.ts";
import { findSandbox } from "../lookup/find-sandbox.ts";
import { formatBytes } from "../output/amount.ts";
import { printable } from "../output/printable.ts";
import { download } from "../transfer/download.ts";
import type { Transfer } from "../transfer/transfer.ts";
import { upload } from "../transfer/upload.ts";
import { verb } from "./verb.ts";

interface CpOptions {
  user: string;
}

export function cpCommand(cli: Cli): Command {
  return verb(cli, "cp", "Copy files and directories into or out of a sandbox", {
    examples: [
      "atoll cp report.csv 4k2:/tmp/",
      "atoll cp ./project 4k2:project",
      "atoll cp 4k2:/var/log ./logs",
      "atoll cp 4k2:result.json - | jq .",
    ],
  })
    .argument("<from>", "a path here, <sandbox>:<path>, or - for stdin")
    .argument("<to>", "a path here, <sandbox>:<path>, or - for stdout")
    .option("-u, --user <user>", "the user whose permissions and home directory apply in the sandbox", "user")
    .addHelpText(
      "after",
      "\nIf the target is an existing directory, the copy keeps its name in it; else it gets the new name.",
    )
    .action(async (fromText: string, toText: string, { user }: CpOptions) => {
      const from = parsePlace(fromText);
      const to = parsePlace(toText);
      const inside = from.sandbox ?? to.sandbox;
      if (inside === undefined || (from.sandbox !== undefined && to.sandbox !== undefined)) {
        throw new UsageError(
          `Cannot copy ${fromText} to ${toText}: exactly one of them has to be in a sandbox`,
          "Write that one as <sandbox>:<path>.",
        );
      }
      const { files } = await findSandbox(cli, inside);
      const leftOut: string[] = [];
      const done = await cli.during(`Copying ${fromText}`, (progress) => {
        let sum = 0;
        const transfer: Transfer = {
          cli,
          files,
          user,
          onBytes: (bytes) => {
            sum += bytes;
            progress.detail = formatBytes(sum);
          },
          onSkipped: (path) => {
            leftOut.push(path);
            cli.note(`${printable(path)}: left out`);
          },
        };
        const copying =
          from.sandbox === undefined ? upload(transfer, from.path, to.path) : download(transfer, from.path, to.path);
        return copying.catch((error: unknown) => {
          throw withRootHint(error, user);
        });
      });
      if (cli.isJson && to.path !== "-") await cli.printJson({ from: fromText, to: toText, ...done, leftOut });
    });
}

/** Adds the hint that root may do what the user may not. */
function withRootHint(error: unknown, user: string): unknown {
  if (!isSandboxError(error, "permission_denied") || error.suggestion !== undefined) return error;
  const { message, details } = error;
  if (user === "root" || (details["errno"] !== "EACCES" && details["errno"] !== "EPERM")) return error;
  const suggestion = `User ${user} in the sandbox may not do that; -u root copies as root.`;
  return new SandboxError("permission_denied", message, { suggestion, details, cause: error });
}
