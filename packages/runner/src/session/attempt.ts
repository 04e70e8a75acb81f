import { readFile, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import { isSandboxError } from "@atoll/protocol";
import { findStatus, isFailure } from "../grading/test-results.ts";
import type { CommandSpec, OutputFile } from "../models/command.ts";
import type { AttemptResult } from "../models/report.ts";
import { parserFor } from "../parsers/parsers.ts";
import type { CommandOutcome, SandboxContext } from "./sandbox-context.ts";
import { StageFailure } from "./stage-context.ts";
import type { Work } from "./work.ts";

const MiB = 1024 * 1024;

/** A parser gets this much of the beginning of an output, and as much of its end: memory is bounded by it. */
const mostParsedBytes = 4 * MiB;
/** A file of results that is larger is not read. */
const mostResultsBytes = 32 * MiB;

const housekeepingTimeoutMs = 60_000;

/** A test run, and its output for those who look for symptoms in it. */
export interface Attempt {
  result: AttemptResult;
  text: string;
}

/** Builds and tests what is in the sandbox. Rejects only when the infrastructure fails: any result is a result. */
export async function runAttempt(work: Work, kind: AttemptResult["kind"], seed: number): Promise<Attempt> {
  const { command, environment } = work.plan;
  const context = work.context();
  const { canary, resultsFile } = command;
  for (const [path, content] of Object.entries(canary?.files ?? {})) {
    await context.writeFile(join(context.workdir, path), content);
  }
  if (resultsFile !== undefined) await clearResults(context, resultsFile);
  const seeded = command.seeded?.(seed);
  const base = { kind, seed: seeded === undefined ? null : seed, parser: command.parser };
  const { testTimeoutMs, setupTimeoutMs } = work.session.config;
  const environmentOfTests = { ...command.env, ...(resultsFile === undefined ? {} : { ATOLL_RESULTS: resultsFile }) };
  for (const argv of command.build) {
    const built = await context.runWithOutput({
      argv,
      cwd: command.cwd,
      env: environmentOfTests,
      timeoutMs: setupTimeoutMs,
    });
    const { end } = built.result;
    if (end.kind === "exit" && end.code === 0) continue;
    failWhenLost(built);
    // Without a build there is nothing to test, which is the result.
    const result = { ...base, command: built.result, tests: {}, suiteRan: false, canary: canaryOff(canary) };
    return { result, text: await textOf(context, built.combined) };
  }
  const extra = [...work.fixes.flatMap(({ plan }) => plan.appendArgs ?? []), ...(canary?.appendArgs ?? [])];
  const spec: CommandSpec = {
    argv: withArguments(seeded?.argv ?? command.argv, extra),
    cwd: command.cwd,
    env: { ...environmentOfTests, ...seeded?.env },
    timeoutMs: testTimeoutMs,
  };
  const outcome = await context.runWithOutput(spec);
  failWhenLost(outcome);
  const text = await textOf(context, outcome.combined);
  const results = resultsFile === undefined ? undefined : await readResults(context, resultsFile);
  const { stdout } = outcome.result;
  const isAll = stdout.path === outcome.combined.path;
  const input = {
    text,
    stdout: isAll ? text : await textOf(context, stdout),
    ...(results === undefined ? {} : { results }),
  };
  const parsed = parserFor(command.parser).parse(input);
  for (const alias of await environment.usedAliases(context)) work.usedAliases.add(alias);
  const tests = Object.fromEntries(parsed.tests);
  const seen = canary === null ? undefined : findStatus(canary.testId, tests);
  if (canary !== null) Reflect.deleteProperty(tests, canary.testId);
  const fate = canary === null ? "off" : seen === undefined ? "missing" : isFailure(seen) ? "failed" : "passed";
  const result = { ...base, command: outcome.result, tests, suiteRan: parsed.suiteRan, canary: fate } as const;
  return { result, text };
}

const canaryOff = (canary: object | null): "off" | "missing" => (canary === null ? "off" : "missing");

/** What cannot be known is not a result of the code. */
function failWhenLost({ result: { end } }: CommandOutcome): void {
  if (end.kind === "lost") throw new StageFailure("infrastructure", `The end of the tests is not known: ${end.reason}`);
}

async function textOf(context: SandboxContext, output: OutputFile): Promise<string> {
  const { head, tail } = await context.readEnds(output, mostParsedBytes);
  return stripVTControlCharacters(tail === "" ? head : `${head}\n${tail}`);
}

/** Arguments of a line for the shell are part of the line. */
function withArguments(argv: readonly string[], extra: readonly string[]): string[] {
  const [shell = "", flag, line] = argv;
  if (extra.length === 0 || argv.length !== 3 || flag !== "-c" || !/(?:^|\/)(?:ba|da)?sh$/.test(shell)) {
    return [...argv, ...extra];
  }
  const quoted = extra.map((text) => `'${text.replaceAll("'", `'\\''`)}'`);
  return [shell, flag, [line, ...quoted].join(" ")];
}

async function clearResults(context: SandboxContext, path: string): Promise<void> {
  const clear = 'rm -rf -- "$1" && mkdir -p -- "$2" && chmod 1777 -- "$2"';
  const argv = ["sh", "-c", clear, "sh", path, dirname(path)];
  // In `/tmp` of a new sandbox there is nothing yet, and the directory is there.
  if (dirname(path) === "/tmp") return;
  await context.runChecked({ argv, cwd: "/", user: "root", timeoutMs: housekeepingTimeoutMs }, "clear the results");
}

/** The file of results, or `undefined` when the command wrote none. */
async function readResults(context: SandboxContext, path: string): Promise<string | undefined> {
  const file = join(context.scratch, "results");
  try {
    await context.sandbox.copyOut(path, file, context.signal);
    const stats = await stat(file);
    if (!stats.isFile() || stats.size > mostResultsBytes) return undefined;
    return await readFile(file, "utf8");
  } catch (error) {
    if (isSandboxError(error, "not_found") || isSandboxError(error, "file_error")) return undefined;
    throw error;
  } finally {
    await rm(file, { recursive: true, force: true });
  }
}
