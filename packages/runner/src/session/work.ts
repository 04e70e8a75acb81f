import { keyOf } from "../cache/stable-json.ts";
import { emptyRecord, type TaskRecord } from "../cache/task-records.ts";
import { chooseFixes, describeFix, findFix, type FixChoice } from "../compat/choose-fixes.ts";
import type { CompatFix, FixPlan, Symptoms } from "../compat/compat-fix.ts";
import type { Environment, TestCommand } from "../environments/environment.ts";
import type { Grade } from "../grading/grade.ts";
import type { AppliedFix } from "../models/report.ts";
import { parserFor } from "../parsers/parsers.ts";
import type { ChangedPath, Repository } from "../repository/repository.ts";
import type { SandboxContext } from "./sandbox-context.ts";
import type { Session } from "./session.ts";
import { StageFailure } from "./stage-context.ts";

/** Raised when what a stage makes changes, so that nothing is taken from the cache of an earlier version. */
const pipelineVersion = 1;

/** Fixes are looked for this often before the environment counts as invalid. */
const mostRounds = 6;

/** The stages that a session may go back to. */
export type Return = "checkout" | "baseline";

/** A fix that is in force, with where it comes from. */
export type StoredFix = TaskRecord["fixes"][number];

/** What is planned for a task with the fixes that are in force, and the keys of what it makes. */
export interface TaskPlan {
  environment: Environment;
  command: TestCommand;
  envSnapshot: string;
  taskSnapshot: string;
  baselineKey: string;
}

/** What the stages of one item hand on to each other. */
export class Work {
  readonly session: Session;
  repository: Repository | undefined;
  testPaths: readonly ChangedPath[] = [];
  /** The key of the record: everything that is known before a fix is chosen. */
  startKey = "";
  record: TaskRecord = emptyRecord;
  fixes: StoredFix[] = [];
  suggested: AppliedFix[] = [];
  readonly usedAliases = new Set<string>();
  grade: Grade | undefined;
  patchApplied = false;
  /** Whether the sandbox that there is has the task as it was set up, and nothing has run in it since. */
  isFresh = false;
  exported = false;
  /** The snapshot of the task, once it was found: it is asked for once. */
  foundSnapshot = "";
  #plan: TaskPlan | undefined;
  #rounds = 0;
  /** The fixes of the best test run so far, and what that run looked like. */
  #best: { fixes: StoredFix[]; symptoms: Symptoms } | undefined;
  readonly #rejected = new Set<string>();
  #base = "";

  constructor(session: Session) {
    this.session = session;
  }

  get task() {
    return this.session.item.instance.task;
  }

  get plan(): TaskPlan {
    if (this.#plan === undefined) throw new Error("Nothing is planned yet");
    return this.#plan;
  }

  /** Plans the environment with the fixes in force. Called again whenever these change. */
  async makePlan(): Promise<void> {
    const { item, services, signal } = this.session;
    const { instance } = item;
    if (this.#base === "") this.#base = await services.client.baseDigest(this.session.config, signal);
    const environment = await services.plan({
      instance,
      tree: this.repository ?? emptyTree,
      cacheDirectory: services.cacheDirectory,
      fixes: this.fixes.map(({ applied, plan }) => ({ id: applied.id, plan })),
      signal,
    });
    const command = environment.testCommand(instance);
    const { workdir, env, limits } = this.session.config;
    const { recipe, inputs, network } = environment;
    // A sandbox of its own, from which nothing is shared, has snapshots of its own.
    const own = services.useCache ? {} : { own: this.session.scratch };
    const base = { version: pipelineVersion, base: this.#base, workdir, env, ...own };
    const envKey = keyOf({ ...base, repo: instance.repo, recipe, inputs, network });
    const taskKey = keyOf({
      envKey,
      ...this.#treeKey(),
      setup: this.task.setup,
      taskEnv: this.task.env,
      fixes: this.fixes.filter(({ plan }) => changesFiles(plan)),
    });
    const baselineKey = keyOf({
      taskKey,
      // Functions are no part of the text of a key.
      command,
      seed: services.seeds[0],
      parser: parserFor(command.parser).version,
      testPatch: instance.testPatch,
      fixes: this.fixes,
      limits,
      testNetwork: this.session.config.testNetwork,
    });
    this.#plan = { environment, command, envSnapshot: `env-${envKey}`, taskSnapshot: `task-${taskKey}`, baselineKey };
  }

  /** Reads what earlier runs have learned about the task. */
  async readRecord(): Promise<void> {
    const { item, services, signal } = this.session;
    const { task, repo, testPatch, evalScript, logParser, version } = item.instance;
    this.#base = await services.client.baseDigest(this.session.config, signal);
    const { id: _id, sandbox, failToPass, passToPass, ...rest } = task;
    const expected = { failToPass, passToPass };
    const given = {
      ...rest,
      sandbox: { ...sandbox, name: "" },
      expected,
      repo,
      testPatch,
      evalScript,
      logParser,
      version,
    };
    const key = { version: pipelineVersion, base: this.#base, given, compat: item.compat, ...this.#treeKey() };
    this.startKey = keyOf(key);
    this.record = services.useCache ? await services.records.read(this.startKey) : emptyRecord;
    this.fixes = this.record.fixes.filter(({ applied }) => this.findFix(applied.id) !== undefined);
  }

  async saveRecord(change: Partial<TaskRecord>): Promise<void> {
    this.record = { ...this.record, ...change };
    if (this.session.services.useCache) await this.session.services.records.write(this.startKey, this.record);
  }

  /** Variables of every command, those of fixes included. */
  get env(): Record<string, string> {
    const fixed = this.fixes.map(({ plan }) => plan.env ?? {});
    return Object.assign({}, this.plan.environment.env(), this.task.env, ...fixed) as Record<string, string>;
  }

  context(): SandboxContext {
    return this.session.context(this.env);
  }

  findFix(id: string): CompatFix | undefined {
    return findFix(this.session.services.catalogue, id);
  }

  /**
   * Looks for fixes that the symptoms call for, and puts them in force. Resolves to the stage from which to go on, or
   * to nothing when no fix is known, wanted or left to try.
   */
  async findFixes(context: SandboxContext, symptoms: Symptoms): Promise<Return | undefined> {
    const { item, services } = this.session;
    const { mode, never, allowBehaviourChanges } = item.compat;
    if (mode === "off" || this.#rounds >= mostRounds) return undefined;
    const facts = await this.plan.environment.facts(context);
    const applied = this.fixes.map((fix) => fix.applied.id);
    const rules = { applied, never: [...never, ...this.#rejected], allowBehaviourChanges };
    const chosen = chooseFixes(services.catalogue, symptoms, facts, rules);
    if (chosen.length === 0) return undefined;
    if (mode === "suggest") {
      this.suggested = chosen.map((choice) => describeFix(choice));
      return undefined;
    }
    this.#rounds += 1;
    this.addFixes(chosen);
    return chosen.some(({ plan }) => changesFiles(plan)) ? "checkout" : "baseline";
  }

  /**
   * Looks for fixes that a test run calls for. Fixes with which more expected tests fail or are missing than without
   * them are taken back, and the search goes on without them.
   */
  async findFixesOfTests(context: SandboxContext, symptoms: Symptoms): Promise<Return | undefined> {
    const best = this.#best;
    if (best === undefined || countWrong(symptoms) <= countWrong(best.symptoms)) {
      this.#best = { fixes: [...this.fixes], symptoms };
      return this.findFixes(context, symptoms);
    }
    const harmful = this.fixes.filter((fix) => !best.fixes.includes(fix));
    for (const { applied } of harmful) this.#rejected.add(applied.id);
    this.fixes = [...best.fixes];
    await this.makePlan();
    const next = await this.findFixes(context, best.symptoms);
    return harmful.some(({ plan }) => changesFiles(plan)) ? "checkout" : (next ?? "baseline");
  }

  addFixes(chosen: readonly FixChoice[]): void {
    for (const choice of chosen) {
      const applied = describeFix(choice);
      this.fixes.push({ applied, plan: choice.plan });
      this.session.services.emit({ type: "fix.apply", instance: this.session.item.label, fix: applied });
    }
  }

  /** The fixes in force, with the aliases that programs really used. */
  reportFixes(): AppliedFix[] {
    return this.fixes.map(({ applied, plan }) => {
      if (plan.shim === undefined) return applied;
      const now = [...this.usedAliases].filter((name) => plan.shim?.includes(name.split(":")[0] ?? ""));
      return { ...applied, used: [...new Set([...(applied.used ?? []), ...now])] };
    });
  }

  #treeKey(): object {
    const { repo } = this.session.item;
    return { commit: this.repository?.commit ?? "", patches: repo?.patches ?? [] };
  }
}

const countWrong = ({ missing, failing }: Symptoms): number => missing.length + failing.length;

/** Whether a fix leaves something in the files of a sandbox. Variables and arguments do not. */
export const changesFiles = (plan: FixPlan): boolean =>
  plan.shim !== undefined ||
  plan.interpreter !== undefined ||
  plan.packages !== undefined ||
  plan.files !== undefined ||
  plan.rewrites !== undefined;

const emptyTree = {
  commit: "",
  read: () => Promise.resolve(undefined),
  describe: () => Promise.resolve(undefined),
  list: () => Promise.resolve([]),
};

/** The symptoms of a failed command, for fixes to be found by. */
export async function symptomsOf(context: SandboxContext, failure: unknown): Promise<Symptoms | undefined> {
  if (!(failure instanceof StageFailure) || failure.blame !== "environment") return undefined;
  const last = context.lastResult;
  if (last === undefined) return undefined;
  const texts = await Promise.all([last.stdout, last.stderr].map((output) => context.readOutput(output)));
  return { text: texts.join("\n"), missing: [], seen: [], failing: [] };
}
