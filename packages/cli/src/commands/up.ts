import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { exitCodeOfSignal } from "../exit-code.ts";
import { startServer } from "../host/server-program.ts";
import { verb } from "./verb.ts";

export function upCommand(cli: Cli): Command {
  return verb(cli, "up", "Start the server on this machine, in the foreground", {
    examples: ["atoll up", "atoll up --port 8080 --data-dir /srv/atoll", "atoll up --help"],
  })
    .helpOption(false)
    .allowUnknownOption()
    .allowExcessArguments()
    .argument("[flags...]", "flags of the server; --help lists them")
    .addHelpText("after", `\nCtrl-C stops the server and leaves its sandboxes running for the next one.`)
    .action(async (flags: string[]) => {
      const server = startServer(flags);
      const release = cli.takeSignals((name) => server.stop(name));
      cli.signal.addEventListener("abort", () => server.stop("SIGTERM"), { once: true });
      const { exitCode, signal } = await server.ended;
      release();
      cli.exitCode = exitCode ?? (signal === null ? 1 : exitCodeOfSignal(signal));
    });
}
