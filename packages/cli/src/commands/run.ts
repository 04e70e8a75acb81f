import { readFile } from "node:fs/promises";
import { basename, extname } from "node:path";
import type { RunOnceInput } from "@atoll/protocol";
import { Sandbox } from "@atoll/sdk";
import { Option, type Command } from "commander";
import type { Cli } from "../cli.ts";
import { exitCodeOf } from "../exit-code.ts";
import { parseDuration } from "../input/duration.ts";
import { collect, collectPairs, type Pairs } from "../input/pair.ts";
import { UsageError } from "../input/usage-error.ts";
import { tellEnd } from "../session/finish.ts";
import { relayEvent } from "../session/relay-output.ts";
import { verb } from "./verb.ts";

const languages = ["python", "javascript", "typescript", "bash"] as const;
type Language = (typeof languages)[number];

const languageOfExtension: Readonly<Record<string, Language>> = {
  ".py": "python",
  ".js": "javascript",
  ".mjs": "javascript",
  ".cjs": "javascript",
  ".ts": "typescript",
  ".mts": "typescript",
  ".sh": "bash",
  ".bash": "bash",
};

interface RunOptions {
  code?: string;
  language?: Language;
  template?: string;
  env?: Pairs;
  file?: string[];
  interactive?: boolean;
  timeout?: number;
}

/** The command keeps nothing of the output: it has been written by then. */
const keptOutputBytes = 0;

export function runCommand(cli: Cli): Command {
  return verb(cli, "run", "Run code or a command in a sandbox of its own, which is removed afterwards", {
    isCommand: true,
    examples: [
      "atoll run script.py",
      "atoll run -l python -c 'print(6 * 7)'",
      "atoll run -l bash - < setup.sh",
      "atoll run --file data.csv --timeout 30s report.py",
      "atoll run -- uname -a",
    ],
  })
    .argument("[command...]", "a file with code, - for code from stdin, or behind -- a command")
    .option("-c, --code <code>", "the code itself")
    .addOption(new Option("-l, --language <language>", "of the code; else the file's ending says").choices(languages))
    .option("--template <name>", "what to start from (default: host)")
    .option("-e, --env <name=value>", "set a variable; may be repeated", collectPairs("a variable"))
    .option("--file <path>", "put this file beside the code; may be repeated", collect)
    .option("-i, --interactive", "send stdin, up to 16 MiB, to the code")
    .option("--timeout <duration>", "end it after this (default: 1m), with exit code 124", parseDuration)
    .action(async (words: string[], options: RunOptions) => {
      const atoll = await cli.atoll();
      const what = await whatToRun(cli, words, options);
      const request: RunOnceInput = {
        ...what,
        ...(options.template === undefined ? {} : { template: options.template }),
        ...(options.env === undefined ? {} : { env: options.env }),
        ...(options.file === undefined ? {} : { files: await readFiles(options.file) }),
        ...(options.interactive === true ? { stdin: await readAll(cli) } : {}),
        ...(options.timeout === undefined ? {} : { timeoutMs: options.timeout }),
      };
      const { command } = await atoll.run({
        ...request,
        maxOutputBytes: keptOutputBytes,
        onOutput: (event) => relayEvent(cli, event),
        signal: cli.signal,
      });
      // The server would keep it for a while, for whoever asks again. Nobody will: the answer is here.
      await Sandbox.kill(command.sandboxId, { client: atoll, signal: cli.signal }).catch(() => undefined);
      await relayEvent(cli, { type: "ended", command });
      tellEnd(cli, command);
      cli.exitCode = exitCodeOf(command);
    });
}

async function whatToRun(
  cli: Cli,
  words: readonly string[],
  options: RunOptions,
): Promise<Pick<RunOnceInput, "language" | "code" | "argv">> {
  const [first, ...more] = words;
  if (options.code !== undefined) {
    if (first !== undefined) throw new UsageError("Cannot run both -c and a file", "Give one of them.");
    return { language: languageFor(options), code: options.code };
  }
  if (first === undefined)
    throw new UsageError("Cannot run: nothing is named", "Give a file, -c <code>, or -- and a command.");
  if (first === "-") {
    if (options.interactive === true)
      throw new UsageError("Cannot read both code and input from stdin", "Put one into a file.");
    return { language: languageFor(options), code: await readAll(cli) };
  }
  const isFile = more.length === 0 && (options.language !== undefined || languageOf(first) !== undefined);
  if (!isFile) return { argv: [...words] };
  return { language: languageFor(options, first), code: await readText(first) };
}

function languageOf(path: string): Language | undefined {
  return languageOfExtension[extname(path).toLowerCase()];
}

function languageFor(options: RunOptions, path = ""): Language {
  const language = options.language ?? languageOf(path);
  if (language === undefined) {
    throw new UsageError("Cannot run code without knowing its language", `Give -l ${languages.join(", -l ")}.`);
  }
  return language;
}

async function readText(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    throw new UsageError(`Cannot read ${path}: ${(error as Error).message}`, "For a command, put -- before it.");
  }
}

async function readFiles(paths: readonly string[]): Promise<Record<string, string>> {
  return Object.fromEntries(
    await Promise.all(paths.map(async (path) => [basename(path), await readText(path)] as const)),
  );
}

async function readAll(cli: Cli): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of cli.stdin) pieces.push(Buffer.from(piece as Buffer));
  return Buffer.concat(pieces).toString("utf8");
}
