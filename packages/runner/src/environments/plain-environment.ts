import type { EnvFacts, FixPlan } from "../compat/compat-fix.ts";
import type { CompatFix } from "../compat/compat-fix.ts";
import { type EnvRecipe, type Instance, toArgv } from "../models/task.ts";
import type { StageContext } from "../session/stage-context.ts";
import type { Environment, TestCommand } from "./environment.ts";
import { planTests, withCommand } from "./recipes/plan-test-command.ts";

/** What the template or the image has, and nothing more. */
export class PlainEnvironment implements Environment {
  readonly recipe: EnvRecipe;
  readonly network: readonly string[] = [];
  readonly #instance: Instance;

  constructor(instance: Instance) {
    this.#instance = instance;
    this.recipe = instance.task.environment;
  }

  get inputs(): string {
    return JSON.stringify(this.recipe);
  }

  env(): Readonly<Record<string, string>> {
    return { LANG: "C.UTF-8", ...this.recipe.env };
  }

  async prepare(): Promise<void> {}

  async install(context: StageContext): Promise<void> {
    for (const line of this.recipe.install) {
      const timeoutMs = this.#instance.task.sandbox.setupTimeoutMs;
      await context.runChecked({ argv: toArgv(line), cwd: context.workdir, timeoutMs }, "install the project");
    }
  }

  async facts(): Promise<EnvFacts> {
    return { language: "none", version: [], interpreters: [], repo: this.#instance.repo, packages: {} };
  }

  async apply(_context: StageContext, _fix: CompatFix, _plan: FixPlan): Promise<void> {}

  async usedAliases(): Promise<string[]> {
    return [];
  }

  testCommand(instance: Instance): TestCommand {
    return withCommand(planTests(instance, undefined), instance.task);
  }
}
