import { isSandboxError, SandboxError } from "@atoll/protocol";
import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { exitCodes } from "../exit-code.ts";
import { askServer } from "../host/server-program.ts";
import { verb } from "./verb.ts";

/** The result of one check. */
interface Check {
  name: string;
  isFine: boolean;
  finding: string;
  fix?: string | undefined;
}

export function doctorCommand(cli: Cli): Command {
  return verb(cli, "doctor", "Check what this machine and the connection to the server can do, and what is missing", {
    examples: ["atoll doctor", "atoll doctor --json"],
  }).action(async () => {
    const [machine, connection] = await cli.during("Looking", Promise.all([checkMachine(cli), checkConnection(cli)]));
    if (cli.isJson) await cli.printJson({ machine: machine.report, connection });
    else {
      await cli.write(machine.text);
      for (const check of connection) await cli.print(lineOf(cli, check));
    }
    if (!machine.isFine || !connection.every(({ isFine }) => isFine)) cli.exitCode = exitCodes.failure;
  });
}

/** Asks the server program to check the machine, because it is the one that runs sandboxes here. */
async function checkMachine(cli: Cli): Promise<{ isFine: boolean; text: string; report?: unknown }> {
  const flags = cli.isJson ? ["--doctor", "--json"] : ["--doctor"];
  try {
    const { exitCode, stdout, stderr } = await askServer(flags, cli.signal);
    if (stdout === "")
      throw new SandboxError("unsupported", `Cannot check this machine: the server said ${stderr.trim()}`);
    return { isFine: exitCode === 0, text: stdout, report: cli.isJson ? (JSON.parse(stdout) as unknown) : undefined };
  } catch (error) {
    if (!isSandboxError(error, "unsupported")) throw error;
    // A machine without a server need not be able to run sandboxes.
    return { isFine: true, text: `${error.message}\n`, report: { unknownBecause: error.message } };
  }
}

async function checkConnection(cli: Cli): Promise<Check[]> {
  const { url, key } = await cli.settings();
  const atoll = await cli.atoll();
  try {
    const isReady = await atoll.isReady({ signal: cli.signal });
    const finding = `${url.value} ${isReady ? "accepts work" : "answers, but accepts no work now"}`;
    const server: Check = { name: "server", isFine: isReady, finding };
    return [server, await checkKey(cli, key.value)];
  } catch (error) {
    if (!isSandboxError(error)) throw error;
    return [{ name: "server", isFine: false, finding: error.message, fix: `"atoll up" starts one here.` }];
  }
}

async function checkKey(cli: Cli, key: string | undefined): Promise<Check> {
  if (key === undefined) {
    const fix = `"atoll config set key" stores the key that the server printed at its first start.`;
    return { name: "key", isFine: false, finding: "there is none", fix };
  }
  try {
    for await (const _sandbox of (await cli.atoll()).sandboxes({ pageSize: 1, signal: cli.signal })) break;
    return { name: "key", isFine: true, finding: "the server knows it" };
  } catch (error) {
    if (!isSandboxError(error)) throw error;
    return { name: "key", isFine: false, finding: error.message, fix: error.suggestion };
  }
}

function lineOf(cli: Cli, { name, isFine, finding, fix }: Check): string {
  const mark = isFine ? cli.style("good", "ok") : cli.style("bad", "--");
  return `${mark}  ${name}: ${finding}${fix === undefined ? "" : `\n    ${fix}`}`;
}
