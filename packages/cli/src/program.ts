import { Command } from "commander";
import type { Cli, SharedOptions } from "./cli.ts";
import { addSharedOptions, outputOf } from "./commands/verb.ts";
import { exitCodeHelp } from "./exit-code.ts";
import { version } from "./version.ts";

type MakeCommand = (cli: Cli) => Command;

/** Each command is loaded when it is used: most calls need one command, and start by loading its code. */
const groups: Readonly<Record<string, Readonly<Record<string, () => Promise<MakeCommand>>>>> = {
  "Run things:": {
    run: async () => (await import("./commands/run.ts")).runCommand,
    exec: async () => (await import("./commands/exec.ts")).execCommand,
    shell: async () => (await import("./commands/shell.ts")).shellCommand,
    attach: async () => (await import("./commands/attach.ts")).attachCommand,
    logs: async () => (await import("./commands/logs.ts")).logsCommand,
    ps: async () => (await import("./commands/ps.ts")).psCommand,
  },
  "Run tasks of repositories:": {
    task: async () => (await import("./commands/task.ts")).taskCommand,
    swe: async () => (await import("./commands/swe.ts")).sweCommand,
    report: async () => (await import("./commands/report.ts")).reportCommand,
    cache: async () => (await import("./commands/cache.ts")).cacheCommand,
  },
  "Live apps:": {
    app: async () => (await import("./commands/app.ts")).appCommand,
  },
  "Sandboxes:": {
    create: async () => (await import("./commands/create.ts")).createCommand,
    ls: async () => (await import("./commands/ls.ts")).lsCommand,
    info: async () => (await import("./commands/info.ts")).infoCommand,
    stats: async () => (await import("./commands/stats.ts")).statsCommand,
    cp: async () => (await import("./commands/cp.ts")).cpCommand,
    port: async () => (await import("./commands/port.ts")).portCommand,
    pause: async () => (await import("./commands/pause.ts")).pauseCommand,
    resume: async () => (await import("./commands/resume.ts")).resumeCommand,
    fork: async () => (await import("./commands/fork.ts")).forkCommand,
    checkpoints: async () => (await import("./commands/checkpoints.ts")).checkpointsCommand,
    snapshot: async () => (await import("./commands/snapshot.ts")).snapshotCommand,
    rollback: async () => (await import("./commands/rollback.ts")).rollbackCommand,
    kill: async () => (await import("./commands/kill.ts")).killCommand,
  },
  "Security:": {
    profile: async () => (await import("./commands/profile.ts")).profileCommand,
    scan: async () => (await import("./commands/scan.ts")).scanCommand,
    key: async () => (await import("./commands/key.ts")).keyCommand,
    audit: async () => (await import("./commands/audit.ts")).auditCommand,
    isolate: async () => (await import("./commands/isolate.ts")).isolateCommand,
    release: async () => (await import("./commands/isolate.ts")).releaseCommand,
    evidence: async () => (await import("./commands/evidence.ts")).evidenceCommand,
  },
  "Server:": {
    up: async () => (await import("./commands/up.ts")).upCommand,
    doctor: async () => (await import("./commands/doctor.ts")).doctorCommand,
    events: async () => (await import("./commands/events.ts")).eventsCommand,
    template: async () => (await import("./commands/template.ts")).templateCommand,
  },
  "This program:": {
    config: async () => (await import("./commands/config.ts")).configCommand,
    completion: async () => (await import("./commands/completion.ts")).completionCommand,
  },
};

/** The commands that other commands start, and never a person. */
const ownCommands: Readonly<Record<string, () => Promise<MakeCommand>>> = {
  "keep-apps": async () => (await import("./commands/keep-apps.ts")).keepAppsCommand,
  "keep-server": async () => (await import("./commands/keep-server.ts")).keepServerCommand,
};

/** The commands that describe all others. */
const coversAllCommands: ReadonlySet<string> = new Set(["completion"]);

/** Returns the program for one command line, with only the command that it names, where one is enough. */
export async function programFor(cli: Cli, argv: readonly string[]): Promise<Command> {
  const [first = ""] = operands(argv);
  const isKnown = Object.values(groups).some((commands) => Object.hasOwn(commands, first));
  if (isKnown && !coversAllCommands.has(first)) return buildProgram(cli, first);
  const own = Object.hasOwn(ownCommands, first) ? ownCommands[first] : undefined;
  if (own !== undefined) return (await buildProgram(cli, first)).addCommand((await own())(cli), { hidden: true });
  return buildProgram(cli);
}

/** Returns the words that are neither options nor their values, up to where a command's own words may begin. */
function operands(argv: readonly string[]): string[] {
  const takesValue = (word: string | undefined) => word === "--url" || word === "--key";
  return argv.filter((word, at) => !word.startsWith("-") && !takesValue(argv[at - 1]));
}

/**
 * Returns the whole command line, or the part with one command. It writes help; errors are thrown, and `main` reports
 * them.
 */
export async function buildProgram(cli: Cli, only?: string): Promise<Command> {
  const program = new Command("atoll")
    .description("Run code you do not trust on machines you own")
    .version(version(), "-V, --version", "print the version")
    .helpOption("-h, --help", "show this help")
    .configureOutput(outputOf(cli))
    .exitOverride()
    .enablePositionalOptions();
  addSharedOptions(program);
  for (const [group, commands] of Object.entries(groups)) {
    for (const [name, load] of Object.entries(commands)) {
      if (only === undefined || only === name) {
        program.addCommand(addSharedOptions((await load())(cli)).helpGroup(group));
      }
    }
  }
  program.addHelpCommand(
    new Command("help").argument("[command]").description("Show the help of a command").helpGroup("This program:"),
  );
  program.hook("preAction", (_program, command) => cli.begin(command.optsWithGlobals<SharedOptions>()));
  program.addHelpText(
    "after",
    `\n${exitCodeHelp}\n\n` +
      "The server and the key come from --url and --key, else from ATOLL_API_URL and\n" +
      'ATOLL_API_KEY, else from "atoll config set".',
  );
  return program;
}
