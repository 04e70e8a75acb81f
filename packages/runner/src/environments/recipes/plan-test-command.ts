import { type Instance, type ParserId, toArgv } from "../../models/task.ts";
import type { CanaryPlan, TestCommand } from "../environment.ts";
import { planNodeCanary } from "../node/node-canary.ts";
import { planCanary } from "../python/python-canary.ts";
import { readEvalScript } from "./eval-script.ts";
import { type KnownRepository, parseVersion } from "./known-repositories.ts";
import { testFiles } from "./test-files.ts";

/** What the tests of an instance are run with, before an environment adds its own. */
export interface PlannedTests {
  argv: readonly string[];
  env: Readonly<Record<string, string>>;
  build: readonly (readonly string[])[];
  parser: ParserId;
  files: readonly string[];
  canary: CanaryPlan | null;
}

/**
 * The commands of an instance: those of its `eval_script` if it has one, otherwise those of its repository, otherwise
 * what the task says.
 */
export function planTests(instance: Instance, known: KnownRepository | undefined): PlannedTests {
  const { task, testPatch, evalScript } = instance;
  const files = testFiles(testPatch);
  const script = evalScript === undefined ? undefined : readEvalScript(evalScript);
  const lines = script?.test ?? (known === undefined || files.length === 0 ? undefined : [commandOf(known, instance)]);
  const parser = task.parser === "auto" ? (known?.parser ?? "auto") : task.parser;
  const build = [...(script?.build ?? known?.build ?? []).map(toArgv), ...task.build.map(toArgv)];
  const env = { ...known?.env, ...localeOf(script?.env ?? {}), ...task.env };
  if (lines === undefined) {
    return { argv: toArgv(task.test), env, build, parser, files, canary: null };
  }
  const adapted = lines.map(withoutTox);
  const last = adapted.at(-1) ?? "";
  const runner = runnerOf(last);
  const canary = runner === undefined ? planNodeCanary(last) : planCanary(runner, files);
  return { argv: takesArguments(adapted.join("\n")), env, build, parser, files, canary };
}

const commandOf = (known: KnownRepository, { testPatch, version }: Instance): string =>
  known.test(testFiles(testPatch), parseVersion(version));

/** A command to whose last line arguments can be added by adding them to the list. */
const takesArguments = (line: string): string[] =>
  // Arguments would go to what reads the output, and no canary is planned for it.
  line.includes("|") ? ["bash", "-c", line] : ["bash", "-c", `${line} "$@"`, "bash"];

/** tox makes environments of its own, from an index; what it would run in them is pytest. */
function withoutTox(line: string): string {
  const [, files] = /^tox\b.*?\s--\s(.*)$/.exec(line) ?? [];
  return files === undefined ? line : `python -m pytest -rA ${files}`;
}

function runnerOf(line: string): "pytest" | "sympy" | "django" | undefined {
  if (/(^|[\s/])(pytest|py\.test)\s/.test(`${line} `)) return "pytest";
  if (/(^|\s)bin\/test\s/.test(line)) return "sympy";
  return /(^|\/)runtests\.py\s/.test(line) && line.includes("--settings") ? "django" : undefined;
}

/** Locales other than C.UTF-8 are generated in the official images and are not there in a sandbox. */
function localeOf(env: Readonly<Record<string, string>>): Record<string, string> {
  const isLocale = (name: string): boolean => name === "LANG" || name === "LANGUAGE" || name.startsWith("LC_");
  return Object.fromEntries(
    Object.entries(env).map(([name, value]) => [name, isLocale(name) && /UTF-?8/i.test(value) ? "C.UTF-8" : value]),
  );
}

/** What a sandbox has for its proxy: tests that look at it take another way, and without network it leads nowhere. */
const proxyVariables = [
  ...["http_proxy", "https_proxy", "all_proxy", "no_proxy"].flatMap((name) => [name, name.toUpperCase()]),
  "npm_config_proxy",
  "npm_config_https_proxy",
  "npm_config_noproxy",
  "YARN_HTTP_PROXY",
  "YARN_HTTPS_PROXY",
  "NODE_USE_ENV_PROXY",
];

export function withCommand(tests: PlannedTests, { sandbox }: Instance["task"]): TestCommand {
  const without = (argv: readonly string[]): string[] =>
    sandbox.testNetwork ? [...argv] : ["env", ...proxyVariables.map((name) => `--unset=${name}`), ...argv];
  return {
    argv: without(tests.argv),
    cwd: sandbox.workdir,
    env: tests.env,
    parser: tests.parser,
    build: tests.build,
    canary: tests.canary,
  };
}
