import { isSandboxError, type SandboxError } from "@atoll/protocol";
import { CommanderError } from "commander";
import { Cli } from "./cli.ts";
import { readEnvironment } from "./environment.ts";
import { exitCodeOfStart, exitCodes } from "./exit-code.ts";
import { UsageError } from "./input/usage-error.ts";
import { Interruption } from "./interruption.ts";
import { printable } from "./output/printable.ts";
import { styleFor } from "./output/style.ts";
import { programFor } from "./program.ts";

interface Failure {
  code: string;
  message: string;
  suggestion?: string | undefined;
  /** Mistakes in the code of an app, with their places. */
  diagnostics?: unknown;
  exitCode: number;
}

const endingSignals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** Runs one command line. Only this sets the exit code of the process and turns errors into text. */
export async function runCommandLine(argv: readonly string[]): Promise<void> {
  const { stdin, stdout, stderr } = process;
  await using cli = new Cli({ stdin, stdout, stderr }, readEnvironment());
  for (const name of endingSignals) {
    process.on(name, () => {
      // A user who interrupts twice does not want to wait for the work that is still going on.
      if (cli.signal.aborted) process.exit(new Interruption(name).exitCode);
      cli.receive(name);
    });
  }
  // Without a listener, a reader that leaves, as `head` does, would end the process with a stack trace.
  stdout.on("error", (error) => cli.loseOutput(error));
  stderr.on("error", () => undefined);
  try {
    await (await programFor(cli, argv)).parseAsync(argv, { from: "user" });
    await cli.assertWritten();
    process.exitCode = cli.exitCode;
  } catch (error) {
    const failure = failureOf(error, cli, argv);
    process.exitCode = failure.exitCode;
    if (failure.message !== "") printFailure(failure, cli, argv);
  }
}

function failureOf(error: unknown, cli: Cli, argv: readonly string[]): Failure {
  const reason: unknown = cli.signal.aborted ? cli.signal.reason : undefined;
  if (reason instanceof Interruption) return { code: "interrupted", message: "", exitCode: reason.exitCode };
  if (reason instanceof Error) return { code: "internal", message: reason.message, exitCode: cli.failureExitCode };
  if (error instanceof CommanderError) return commandLineFailure(error, cli, argv);
  const own = cli.failureExitCode;
  if (error instanceof UsageError) {
    const exitCode = own === exitCodes.ownFailure ? own : exitCodes.usage;
    return { code: "usage", message: error.message, suggestion: error.hint, exitCode };
  }
  if (isSandboxError(error)) {
    const exitCode = own === exitCodes.ownFailure ? exitCodeOfStart(error) : own;
    const { code, message } = error;
    return { code, message, suggestion: suggestionFor(error), diagnostics: error.details["diagnostics"], exitCode };
  }
  const message = error instanceof Error ? error.message : String(error);
  return { code: "internal", message, exitCode: own };
}

/**
 * Turns an error of Commander into a failure. Help and version come as errors too, with their text already written.
 * Help that is shown because no command was named is no failure; help for an unknown command is a mistake.
 */
function commandLineFailure(error: CommanderError, cli: Cli, argv: readonly string[]): Failure {
  if (error.exitCode === 0 || error.code === "commander.help") {
    const isMistake = error.exitCode !== 0 && argv.includes("help");
    return { code: "help", message: "", exitCode: isMistake ? exitCodes.usage : exitCodes.ok };
  }
  const [first = "", ...rest] = error.message.replace(/^error: /, "").split("\n");
  const similar = /\(Did you mean (.+)\?\)/.exec(rest.join(" "))?.[1];
  const exitCode = cli.failureExitCode === exitCodes.ownFailure ? exitCodes.ownFailure : exitCodes.usage;
  return {
    code: "usage",
    message: `${first.charAt(0).toUpperCase()}${first.slice(1)}`,
    suggestion: similar === undefined ? `"atoll --help" lists the commands.` : `Did you mean ${similar}?`,
    exitCode,
  };
}

function suggestionFor({ code, suggestion, details }: SandboxError): string | undefined {
  // This is for a server that did not answer; one that answered has its own suggestion.
  if (code === "unavailable" && details["baseUrl"] !== undefined) {
    return `Start the server with "atoll up", or say where it is with --url or "atoll config set url".`;
  }
  // With an errno the kernel of the sandbox refused its user; without one the server refused the key.
  const isOfKey = code === "permission_denied" && details["errno"] === undefined;
  if (isOfKey && (suggestion?.includes("Authorization") ?? true)) {
    return `The key comes from --key, ATOLL_API_KEY or "atoll config set key"; "atoll config" shows which is in use.`;
  }
  return suggestion;
}

function printFailure(failure: Failure, cli: Cli, argv: readonly string[]): void {
  const { code, message, suggestion, diagnostics } = failure;
  const isJson = cli.isJson || argv.slice(0, endOfOptions(argv)).includes("--json");
  if (isJson) {
    // JSON leaves out what is undefined.
    const body = { code, message, suggestion, diagnostics };
    cli.stderr.write(`${JSON.stringify({ error: body })}\n`);
    return;
  }
  const style = styleFor(cli.stderr, cli.environment);
  cli.stderr.write(`${style("bad", "error:")} ${lines(message)}\n`);
  if (suggestion !== undefined) cli.stderr.write(`${style("quiet", "hint:")} ${lines(suggestion)}\n`);
}

function endOfOptions(argv: readonly string[]): number {
  const at = argv.indexOf("--");
  return at === -1 ? argv.length : at;
}

/** Escapes a message, but keeps its line breaks. */
function lines(text: string): string {
  return text.split("\n").map(printable).join("\n");
}
