import type { CompatFix, EnvFacts, FixPlan, PlannedFix } from "../compat/compat-fix.ts";
import type { EnvRecipe, Instance, ParserId } from "../models/task.ts";
import type { RepositoryTree } from "../repository/repository-tree.ts";
import type { StageContext } from "../session/stage-context.ts";

/** How the tests of an instance are run. */
export interface TestCommand {
  argv: readonly string[];
  cwd: string;
  env: Readonly<Record<string, string>>;
  parser: ParserId;
  /** Where the command writes structured results, outside the work tree. Emptied before each run. */
  resultsFile?: string;
  /** Commands before the tests of each state: a build, for example. */
  build: readonly (readonly string[])[];
  /** Adds what makes a run with this seed repeatable. */
  seeded?(seed: number): { argv: readonly string[]; env: Readonly<Record<string, string>> };
  /** A test that must fail: if it passes, results are forged. `null` where the runner has no place for one. */
  canary: CanaryPlan | null;
}

export interface CanaryPlan {
  /** Laid in beside the tests, by path relative to the work tree, and removed afterwards. */
  files: Readonly<Record<string, string>>;
  appendArgs: readonly string[];
  /** The id of the test, as the parser reports it. */
  testId: string;
}

/** The environment of one instance, planned before a sandbox is started. */
export interface Environment {
  readonly recipe: EnvRecipe;
  /** Everything on the host that the environment is made from, as text: part of the key of its snapshot. */
  readonly inputs: string;
  /** Hosts that `prepare` and `install` have to reach, beside those of the task; empty for most. */
  readonly network: readonly string[];
  /** Stage `env`: interpreters, packages and tools outside the work tree. Shared by all tasks with the same key. */
  prepare(context: StageContext): Promise<void>;
  /** Stage `setup`: what has to be done in the work tree, such as `npm ci` or an editable install. */
  install(context: StageContext): Promise<void>;
  /** Variables for every command of the session; read after `prepare`. */
  env(): Readonly<Record<string, string>>;
  facts(context: StageContext): Promise<EnvFacts>;
  /** Stage `compat`: makes the changes of a fix, other than variables and arguments, which the session adds. */
  apply(context: StageContext, fix: CompatFix, plan: FixPlan): Promise<void>;
  /** Aliases of the shim that programs used since the last call, from its trace. */
  usedAliases(context: StageContext): Promise<string[]>;
  testCommand(instance: Instance): TestCommand;
}

/** Plans the environment of an instance from its recipe and the files of its repository. */
export type PlanEnvironment = (input: {
  instance: Instance;
  tree: RepositoryTree;
  /** A directory that all runs share, for unpacked packages and the like. */
  cacheDirectory: string;
  /** What was found to be needed before: an interpreter or packages of a plan count from the start. */
  fixes: readonly PlannedFix[];
  signal: AbortSignal;
}) => Promise<Environment>;
