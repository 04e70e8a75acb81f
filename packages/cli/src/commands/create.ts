import type { CreateSandboxInput } from "@atoll/protocol";
import { Sandbox } from "@atoll/sdk";
import { Option, type Command } from "commander";
import type { Cli } from "../cli.ts";
import { parseDuration } from "../input/duration.ts";
import { decimal, wholeNumber } from "../input/number.ts";
import { collect, collectPairs, type Pairs } from "../input/pair.ts";
import { parseSize } from "../input/size.ts";
import { verb } from "./verb.ts";

interface CreateOptions {
  profile?: string;
  snapshot?: string;
  template?: string;
  driver?: "gvisor" | "local";
  memory?: number;
  cpus?: number;
  disk?: number;
  processes?: number;
  label?: Pairs;
  env?: Pairs;
  idle?: number;
  lifetime?: number;
  onTimeout?: "kill" | "pause";
  allow?: string[];
  deny?: string[];
  persistent?: boolean;
}

export function createCommand(cli: Cli): Command {
  return verb(cli, "create", "Create a sandbox and print its id", {
    examples: [
      "atoll create",
      "atoll create --profile high",
      "atoll create --memory 2g --cpus 1 --label job=42",
      "atoll create --allow example.com --allow '*.example.com:443'",
      "id=$(atoll create --lifetime 1h)",
      "atoll create --persistent --idle 10m --on-timeout pause",
    ],
  })
    .option("--profile <name>", 'what it may use and do; "atoll profile ls" lists them')
    .option("--template <name>", 'what to start from (default: host); "atoll template ls" lists them')
    .option("--snapshot <name>", 'files to start with; "atoll snapshot ls" lists them')
    .addOption(new Option("--driver <name>", "how it is run (default: gvisor)").choices(["gvisor", "local"]))
    .option("--memory <size>", "how much memory it may use, such as 512m (default: 1g)", parseSize)
    .option("--cpus <number>", "how many cores' worth of time (default: 2)", decimal("a number of cores"))
    .option("--disk <size>", "how much its files may grow (default: 4g)", parseSize)
    .option(
      "--processes <number>",
      "how many processes and threads (default: 512)",
      wholeNumber("a number of processes", 8, 100_000),
    )
    .option("-l, --label <name=value>", "label it; may be repeated", collectPairs("a label"))
    .option("-e, --env <name=value>", "a variable for every command; may be repeated", collectPairs("a variable"))
    .option("--idle <duration>", "end it after this time without activity: 90s, 10m, 2h", parseDuration)
    .option("--lifetime <duration>", "end it after this time in any case", parseDuration)
    .addOption(new Option("--on-timeout <what>", "how those two end it (default: kill)").choices(["kill", "pause"]))
    .option("--allow <rule>", "let it reach this name, address or CIDR (default: nothing); may be repeated", collect)
    .option("--deny <rule>", "except this; may be repeated", collect)
    .option("--persistent", "a pause saves it to the stores, so that it outlives its server and others can resume it")
    .action(async (options: CreateOptions) => {
      const client = await cli.atoll();
      const creating = Sandbox.create({ ...requestFrom(options), client });
      const sandbox = await cli.during("Creating a sandbox", untilCreatedOrRemoved(cli, creating));
      if (cli.isJson) await cli.printJson(await sandbox.getInfo({ signal: cli.signal }));
      else await cli.print(sandbox.id);
    });
}

/**
 * Waits until the sandbox is created. If the user interrupts that, the sandbox is removed, because no client would know
 * its id.
 */
async function untilCreatedOrRemoved(cli: Cli, creating: Promise<Sandbox>): Promise<Sandbox> {
  const printHint = (): void => cli.note("Interrupted: what was being created is removed. Ctrl-C again leaves it.");
  cli.signal.addEventListener("abort", printHint, { once: true });
  const sandbox = await creating;
  cli.signal.removeEventListener("abort", printHint);
  if (cli.signal.aborted) await sandbox.kill();
  cli.signal.throwIfAborted();
  return sandbox;
}

function requestFrom(options: CreateOptions): CreateSandboxInput {
  const { idle, lifetime, onTimeout, allow, deny } = options;
  const limits = {
    ...(options.memory === undefined ? {} : { memoryBytes: options.memory }),
    ...(options.cpus === undefined ? {} : { cpus: options.cpus }),
    ...(options.disk === undefined ? {} : { diskBytes: options.disk }),
    ...(options.processes === undefined ? {} : { processes: options.processes }),
  };
  const timeouts = {
    ...(idle === undefined ? {} : { idleMs: idle }),
    ...(lifetime === undefined ? {} : { lifetimeMs: lifetime }),
    ...(onTimeout === undefined ? {} : { onTimeout }),
  };
  const hasTimeouts = Object.keys(timeouts).length > 0;
  return {
    ...(options.profile === undefined ? {} : { profile: options.profile }),
    ...(options.template === undefined ? {} : { template: options.template }),
    ...(options.snapshot === undefined ? {} : { snapshot: options.snapshot }),
    ...(options.driver === undefined ? {} : { driver: options.driver }),
    ...(Object.keys(limits).length === 0 ? {} : { limits }),
    ...(options.label === undefined ? {} : { labels: options.label }),
    ...(options.env === undefined ? {} : { env: options.env }),
    ...(hasTimeouts ? { timeouts } : {}),
    ...(options.persistent === undefined ? {} : { persistent: options.persistent }),
    ...(allow === undefined && deny === undefined ? {} : { egress: { allow: allow ?? [], deny: deny ?? [] } }),
  };
}
