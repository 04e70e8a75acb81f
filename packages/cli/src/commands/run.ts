import { isUtf8 } from "node:buffer";
import { basename, extname } from "node:path";
import type { RunOnceInput } from "@atoll/protocol";
import { Sandbox, type RunOnceOptions } from "@atoll/sdk";
import { Option, type Command } from "commander";
import type { Cli } from "../cli.ts";
import { exitCodeOf } from "../exit-code.ts";
import { parseDuration } from "../input/duration.ts";
import { collect, collectPairs, type Pairs } from "../input/pair.ts";
import { readFile, readStdin } from "../input/read-within.ts";
import { UsageError } from "../input/usage-error.ts";
import { printEnd } from "../session/finish.ts";
import { relayEvent } from "../session/relay-output.ts";
import { verb } from "./verb.ts";

const MiB = 1024 * 1024;
/** The limits of the server. */
const codeLimit = { maxBytes: MiB, hint: "Put it into a sandbox with atoll cp, and run it there with atoll exec." };
const inputLimit = { maxBytes: 16 * MiB, hint: "Send it to a sandbox of your own with atoll exec -i." };
const filesLimit = { maxBytes: 16 * MiB, hint: "Copy it into a sandbox of your own with atoll cp." };

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
  profile?: string;
  template?: string;
  env?: Pairs;
  file?: string[];
  interactive?: boolean;
  timeout?: number;
}

/** The result keeps no output, because all of it has been written by then. */
const keptOutputBytes = 0;

export function runCommand(cli: Cli): Command {
  return verb(cli, "run", "Run code or a command in a sandbox of its own, which is removed afterwards", {
    isCommand: true,
    examples: [
      "atoll run script.py",
      "atoll run -l python -c 'print(6 * 7)'",
      "atoll run -l bash - < setup.sh",
      "atoll run --file data.csv --timeout 30s report.py",
      "atoll run --profile high untrusted.py",
      "atoll run -- uname -a",
    ],
  })
    .argument("[command...]", "a file with code, - for code from stdin, or a command after --")
    .option("-c, --code <code>", "the code itself")
    .addOption(
      new Option("-l, --language <language>", "of the code (default: from the file's ending)").choices(languages),
    )
    .option("--profile <name>", 'what it may use and do; "atoll profile ls" lists them')
    .option("--template <name>", "what to start from (default: host)")
    .option("-e, --env <name=value>", "set a variable; may be repeated", collectPairs("a variable"))
    .option("--file <path>", "put this file beside the code, up to 16 MiB in all; may be repeated", collect)
    .option("-i, --interactive", "send stdin, up to 16 MiB, to the code")
    .option("--timeout <duration>", "end it after this (default: 1m), with exit code 124", parseDuration)
    .action(async (words: string[], options: RunOptions) => {
      const atoll = await cli.atoll();
      const what = await whatToRun(cli, words, options);
      const request: RunOnceOptions = {
        ...what,
        ...(options.profile === undefined ? {} : { profile: options.profile }),
        ...(options.template === undefined ? {} : { template: options.template }),
        ...(options.env === undefined ? {} : { env: options.env }),
        ...(options.file === undefined ? {} : { files: await readFiles(options.file) }),
        ...(options.interactive === true ? { stdin: await readStdin(cli, inputLimit) } : {}),
        ...(options.timeout === undefined ? {} : { timeoutMs: options.timeout }),
      };
      const { command } = await cli.during("Running", (progress) =>
        atoll.run({
          ...request,
          maxOutputBytes: keptOutputBytes,
          onOutput: (event) => {
            // The lines from here on are the command's.
            progress.end();
            return relayEvent(cli, event);
          },
          signal: cli.signal,
        }),
      );
      // The server would keep the sandbox for a while, for a retry of the request. The result is here, so there is
      // none.
      await Sandbox.kill(command.sandboxId, { client: atoll, signal: cli.signal }).catch(() => undefined);
      await relayEvent(cli, { type: "ended", command });
      printEnd(cli, command);
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
    throw new UsageError(
      "Cannot run: no code and no command was given",
      "Give a file, -c <code>, or -- and a command.",
    );
  if (first === "-") {
    if (options.interactive === true)
      throw new UsageError("Cannot read both code and input from stdin", "Put one into a file.");
    return { language: languageFor(options), code: textOf(await readStdin(cli, codeLimit), "stdin") };
  }
  const isFile = more.length === 0 && (options.language !== undefined || languageOf(first) !== undefined);
  if (!isFile) return { argv: [...words] };
  return {
    language: languageFor(options, first),
    code: textOf(await readFile(first, { ...codeLimit, missing: "For a command, put -- before it." }), first),
  };
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

function textOf(code: Buffer, from: string): string {
  if (!isUtf8(code)) throw new UsageError(`Cannot run ${from}: it is not text`, "For a command, put -- before it.");
  return code.toString("utf8");
}

/** Reads the files; each gets its own name beside the code. */
async function readFiles(paths: readonly string[]): Promise<Record<string, Uint8Array>> {
  const files = new Map<string, Buffer>();
  let left = filesLimit.maxBytes;
  for (const path of paths) {
    const name = basename(path);
    if (files.has(name)) {
      throw new UsageError(`Cannot put two files ${name} beside the code`, "Give one of them another name.");
    }
    const content = await readFile(path, { ...filesLimit, maxBytes: left });
    files.set(name, content);
    left -= content.length;
  }
  return Object.fromEntries(files);
}
