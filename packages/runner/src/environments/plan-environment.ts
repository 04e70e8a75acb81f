import { SandboxError } from "@atoll/protocol";
import type { EnvRecipe } from "../models/task.ts";
import type { RepositoryTree } from "../repository/repository-tree.ts";
import type { Environment, PlanEnvironment } from "./environment.ts";
import { NodeEnvironment } from "./node/node-environment.ts";
import { choosePackageManager } from "./node/package-manager.ts";
import { findRegistry } from "./node/registry.ts";
import { PlainEnvironment } from "./plain-environment.ts";
import { findDebianPackages } from "./python/debian-packages.ts";
import { normalizeName } from "./python/distribution-names.ts";
import { findIndexPackages } from "./python/index-packages.ts";
import { chooseInterpreter, findInterpreters } from "./python/interpreters.ts";
import { PythonEnvironment } from "./python/python-environment.ts";
import { knownRepositories, parseVersion } from "./recipes/known-repositories.ts";
import { readPyProject, readRequirements } from "./recipes/requirements.ts";

type PlanInput = Parameters<PlanEnvironment>[0];

/**
 * Plans the environment of an instance: what its recipe says comes first, then what is known of its repository, then
 * what the files of the repository ask for.
 */
export const planEnvironment: PlanEnvironment = async (input) => {
  const language = await chooseLanguage(input);
  if (language === "python") return planPython(input);
  if (language === "node") return planNode(input);
  return new PlainEnvironment(input.instance);
};

async function chooseLanguage({ instance, tree }: PlanInput): Promise<"python" | "node" | "none"> {
  const { language } = instance.task.environment;
  if (language !== "auto") return language;
  const known = knownRepositories[instance.repo];
  if (known !== undefined) return known.language;
  const names = await tree.list("");
  if (["setup.py", "setup.cfg", "pyproject.toml", "tox.ini"].some((name) => names.includes(name))) return "python";
  return names.includes("package.json") ? "node" : "none";
}

async function planNode({ instance, tree, cacheDirectory, signal }: PlanInput): Promise<Environment> {
  const recipe = instance.task.environment;
  const isAutomatic = recipe.language === "auto";
  // A task that installs by itself does not need it done twice.
  const hasDependencies = recipe.install.length === 0 && (await tree.list("")).includes("package.json");
  return new NodeEnvironment({
    instance,
    recipe,
    known: isAutomatic ? knownRepositories[instance.repo] : undefined,
    manager: await choosePackageManager(tree),
    registry: await findRegistry(cacheDirectory, signal),
    hasDependencies,
  });
}

async function planPython({ instance, tree, cacheDirectory, fixes, signal }: PlanInput): Promise<Environment> {
  const known = instance.task.environment.language === "auto" ? knownRepositories[instance.repo] : undefined;
  const recipe: EnvRecipe = instance.task.environment;
  const interpreters = await findInterpreters({ cacheDirectory, signal });
  const wishes = [
    ...fixes.flatMap(({ plan }) => plan.interpreter ?? []),
    ...(recipe.interpreter === undefined ? (known?.interpreters?.(parseVersion(instance.version)) ?? []) : []),
  ];
  const interpreter =
    recipe.interpreter === undefined
      ? (wishes.map((wish) => chooseInterpreter(interpreters, wish)).find((found) => found !== undefined) ??
        chooseInterpreter(interpreters, undefined))
      : chooseInterpreter(interpreters, recipe.interpreter);
  if (interpreter === undefined) {
    const wish = recipe.interpreter ?? "3";
    throw new SandboxError("not_found", `Cannot make an environment for ${instance.id}: there is no Python ${wish}`, {
      suggestion: `Install it with the system's package manager, or with pyenv: pyenv install ${wish}`,
      details: { interpreters: interpreters.map(({ path }) => path) },
    });
  }
  const isOpen = recipe.packages.length === 0 && instance.task.environment.language === "auto";
  const wanted = known?.packages ?? (isOpen ? [...(await readRequirements(tree, interpreter.version)), "pytest"] : []);
  const changes = fixes.flatMap(({ plan }) => plan.packages ?? []);
  const packages = new Set([...wanted, ...recipe.packages, ...changes.flatMap(({ add = [] }) => add)]);
  for (const name of changes.flatMap(({ remove = [] }) => remove)) packages.delete(name);
  const own = await ownNames(tree, instance.repo);
  const search = { cacheDirectory, signal };
  const debian = await findDebianPackages(
    [...packages].filter((name) => !own.includes(normalizeName(name))),
    search,
  );
  return new PythonEnvironment({
    instance,
    recipe,
    known,
    interpreters,
    interpreter,
    debian,
    index: await findIndexPackages(debian.missing, interpreter, search),
    own,
    version: await versionOf(instance.version, tree),
    pyproject: await readPyProject(tree),
    cacheDirectory,
    signal,
  });
}

/** The version that a build would take from the tags of git; without tags, the one of the data set. */
async function versionOf(version: string, tree: RepositoryTree): Promise<string> {
  const described = /\d+(?:\.\d+)+/.exec((await tree.describe()) ?? "")?.[0];
  const parts = parseVersion(described ?? version);
  return [...parts, 0, 0, 0].slice(0, Math.max(3, parts.length)).join(".");
}

/** Names of the modules that a repository consists of, and of the repository. */
async function ownNames(tree: RepositoryTree, repo: string): Promise<string[]> {
  const names = new Set(repo === "" ? [] : [normalizeName(repo.split("/").at(-1) ?? "")]);
  for (const directory of ["src", "lib", ""]) {
    for (const name of await tree.list(directory)) {
      const path = directory === "" ? name : `${directory}/${name}`;
      const isModule = name.endsWith(".py") && !["setup.py", "conftest.py"].includes(name) && directory !== "";
      if (isModule) names.add(normalizeName(name.replace(/\.py$/, "")));
      else if ((await tree.read(`${path}/__init__.py`)) !== undefined) names.add(normalizeName(name));
    }
  }
  return [...names].filter((name) => !["tests", "test", "docs", "doc", "setup"].includes(name));
}
