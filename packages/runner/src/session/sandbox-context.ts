import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { RunnerSandbox } from "../client/sandbox-client.ts";
import type { RunEventBody } from "../journal/events.ts";
import { type CommandResult, type CommandSpec, describeEnd, type OutputFile, succeeded } from "../models/command.ts";
import type { StageName } from "../models/report.ts";
import { OutputCapture } from "../output/output-capture.ts";
import { readEnds, readTail, type TextEnds } from "../output/read-text.ts";
import { type StageContext, StageFailure } from "./stage-context.ts";

export interface SandboxContextOptions {
  sandbox: RunnerSandbox;
  workdir: string;
  scratch: string;
  signal: AbortSignal;
  stage: StageName;
  /** The label of the item: directory of its logs, and its name in events. */
  label: string;
  /** The directory of the run. */
  directory: string;
  /** The variables of the session, which a command can replace. */
  env: Readonly<Record<string, string>>;
  /** Every result is added here as it comes. */
  results: CommandResult[];
  /** Numbers the commands of the item. */
  nextNumber: () => number;
  emit: (event: RunEventBody) => void;
}

/** A command with its output, both streams in the order of arrival beside each of them. */
export interface CommandOutcome {
  result: CommandResult;
  combined: OutputFile;
}

const defaultReadBytes = 1024 * 1024;

/** One stage at work in one sandbox. */
export class SandboxContext implements StageContext {
  readonly sandbox: RunnerSandbox;
  readonly workdir: string;
  readonly scratch: string;
  readonly signal: AbortSignal;
  readonly #options: SandboxContextOptions;

  constructor(options: SandboxContextOptions) {
    this.sandbox = options.sandbox;
    this.workdir = options.workdir;
    this.scratch = options.scratch;
    this.signal = options.signal;
    this.#options = options;
  }

  /** The result of the command that the stage has run last. */
  get lastResult(): CommandResult | undefined {
    return this.#options.results.at(-1);
  }

  async run(command: CommandSpec): Promise<CommandResult> {
    return (await this.runWithOutput(command)).result;
  }

  async runWithOutput(command: CommandSpec): Promise<CommandOutcome> {
    const { stage, label, directory, emit, results, nextNumber } = this.#options;
    const number = String(nextNumber()).padStart(3, "0");
    const capture = await OutputCapture.open({
      directory,
      path: `logs/${label}/${number}-${stage}`,
      onLine: (line) => emit({ type: "command.output", instance: label, stage, line }),
    });
    const cwd = command.cwd ?? this.workdir;
    const env = { ...this.#options.env, ...command.env };
    const startedAt = new Date().toISOString();
    const startMs = performance.now();
    emit({ type: "command.start", instance: label, stage, argv: command.argv });
    const finish = async (end: CommandResult["end"]): Promise<CommandOutcome> => {
      const { stdout, stderr, combined } = await capture.finish();
      const durationMs = performance.now() - startMs;
      const argv = [...command.argv];
      const user = command.user ?? "user";
      const result = { argv, cwd, env: redacted(env), user, startedAt, durationMs, end, stdout, stderr };
      results.push(result);
      emit({ type: "command.end", instance: label, stage, end, durationMs });
      return { result, combined };
    };
    let end: CommandResult["end"];
    try {
      end = await this.sandbox.exec({ ...command, cwd, env }, capture, this.signal);
    } catch (error) {
      await finish({ kind: "aborted" });
      throw error;
    }
    return finish(end);
  }

  async runChecked(command: CommandSpec, purpose: string): Promise<CommandResult> {
    const result = await this.run(command);
    if (!succeeded(result.end)) throw failureOf(result, this.#options.stage, purpose);
    return result;
  }

  readOutput(output: OutputFile, maxBytes = defaultReadBytes): Promise<string> {
    return readTail(join(this.#options.directory, output.path), maxBytes);
  }

  /** The first and the last bytes of an output, as text. `tail` is empty when `head` has everything. */
  readEnds(output: OutputFile, bytes: number): Promise<TextEnds> {
    return readEnds(join(this.#options.directory, output.path), bytes, bytes);
  }

  async writeFile(path: string, content: string, mode = 0o644): Promise<void> {
    const file = join(this.scratch, `file-${this.#options.nextNumber()}`);
    await writeFile(file, content, { mode });
    await this.sandbox.copyIn(file, path, this.signal);
  }

  note(line: string): void {
    const { emit, label, stage } = this.#options;
    emit({ type: "command.output", instance: label, stage, line });
  }
}

/** What a failed command means for the verdict. */
function failureOf(result: CommandResult, stage: StageName, purpose: string): StageFailure {
  const { end, stderr, stdout } = result;
  const said = lastLines(stderr.tail || stderr.head) || lastLines(stdout.tail || stdout.head);
  const message = `Cannot ${purpose}: ${describeEnd(end)}${said === "" ? "" : `: ${said}`}`;
  if (end.kind === "lost" || end.kind === "aborted") return new StageFailure("infrastructure", message);
  if (end.kind === "timeout") return new StageFailure("timeout", message);
  return new StageFailure(stage === "apply" || stage === "test" ? "prediction" : "environment", message);
}

/** The last two lines: programs say what is wrong before they say that they give up. */
const lastLines = (text: string): string =>
  text
    .trim()
    .split(/\s*\n\s*/)
    .slice(-2)
    .join("; ")
    .slice(-400);

const secretName = /token|secret|passw|credential|api_?key/i;

const redacted = (env: Readonly<Record<string, string>>): Record<string, string> =>
  Object.fromEntries(Object.entries(env).map(([name, value]) => [name, secretName.test(name) ? "[redacted]" : value]));
