import type { CanaryPlan, Environment, PlanEnvironment } from "../../src/environments/environment.ts";
import { type Instance, type TaskSpecInput, TaskSpec, toArgv } from "../../src/models/task.ts";

/** An environment that is what the machine has. The canary is laid in for pytest only. */
export const machinePlan: PlanEnvironment = ({ instance }) => Promise.resolve(machineEnvironment(instance));

function machineEnvironment(instance: Instance): Environment {
  const { task } = instance;
  return {
    recipe: task.environment,
    inputs: "machine",
    network: [],
    prepare: () => Promise.resolve(),
    install: () => Promise.resolve(),
    env: () => ({ PYTHONDONTWRITEBYTECODE: "1", LANG: "C.UTF-8" }),
    facts: () =>
      Promise.resolve({ language: "python", version: [3, 11], interpreters: [], repo: instance.repo, packages: {} }),
    apply: () => Promise.resolve(),
    usedAliases: () => Promise.resolve([]),
    testCommand: () => ({
      argv: toArgv(task.test),
      cwd: task.sandbox.workdir,
      env: {},
      parser: task.parser,
      build: task.build.map(toArgv),
      seeded: (seed) => ({ argv: toArgv(task.test), env: { PYTHONHASHSEED: String(seed) } }),
      canary: task.parser === "pytest" && task.canary ? canary : null,
    }),
  };
}

const canary: CanaryPlan = {
  files: { "test_atoll_canary.py": "def test_canary():\n    assert False\n" },
  appendArgs: ["test_atoll_canary.py"],
  testId: "test_atoll_canary.py::test_canary",
};

/** An instance of a repository at a path. */
export function instanceOf(
  path: string,
  baseCommit: string,
  {
    id = "o__r-1",
    testPatch = "",
    goldPatch = null,
    task,
  }: {
    id?: string;
    testPatch?: string;
    goldPatch?: string | null;
    task: TaskSpecInput;
  },
): Instance {
  return {
    id,
    repo: "o/r",
    baseCommit,
    version: "1",
    goldPatch,
    testPatch,
    problemStatement: "",
    createdAt: "",
    task: TaskSpec.parse({ ...task, repo: { path, ref: baseCommit } }),
  };
}
