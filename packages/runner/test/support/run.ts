import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "vitest";
import type { RunEvent } from "../../src/journal/events.ts";
import type { InstanceReport, RunReport } from "../../src/models/report.ts";
import type { Instance } from "../../src/models/task.ts";
import { runInstances } from "../../src/run/run-instances.ts";
import type { RunItem, RunOptions } from "../../src/run/run-options.ts";
import { type Files, GitRepository } from "./git-repository.ts";
import { LocalClient } from "./local-client.ts";
import { instanceOf, machinePlan } from "./plans.ts";

/** Sandboxes of these tests have an overlay each. */
export const whyNot = "only root can mount";
export const canRun = process.getuid?.() === 0;

/** A place for runs, caches and sandboxes of one test. */
export class RunPlace implements AsyncDisposable {
  readonly root: string;
  readonly events: RunEvent[] = [];

  private constructor(root: string) {
    this.root = root;
  }

  static async make(): Promise<RunPlace> {
    return new RunPlace(await mkdtemp(join(tmpdir(), "atoll-runner-run-")));
  }

  client(options: ConstructorParameters<typeof LocalClient>[1] = {}): LocalClient {
    return new LocalClient(join(this.root, "client"), options);
  }

  options(items: readonly RunItem[], more: Partial<RunOptions> = {}): RunOptions {
    const runId = more.runId ?? "run";
    return {
      runId,
      directory: join(this.root, "runs", runId),
      cacheDirectory: join(this.root, "cache"),
      client: this.client(),
      items,
      plan: machinePlan,
      signal: new AbortController().signal,
      onEvent: (event) => this.events.push(event),
      ...more,
    };
  }

  run(items: readonly RunItem[], more: Partial<RunOptions> = {}): Promise<RunReport> {
    this.events.length = 0;
    return runInstances(this.options(items, more));
  }

  async runOne(item: RunItem, more: Partial<RunOptions> = {}): Promise<InstanceReport> {
    return only(await this.run([item], more));
  }

  /** How many sandboxes the last run has started. */
  get sandboxes(): number {
    return this.events.filter(({ type }) => type === "sandbox.start").length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.root, { recursive: true, force: true });
  }
}

function only(report: RunReport): InstanceReport {
  expect(report.instances).toHaveLength(1);
  return report.instances[0] as InstanceReport;
}

export const stagesOf = (report: InstanceReport): string[] =>
  report.stages.map(({ stage, status }) => `${stage} ${status}`);

const source = { "calc.py": "def add(a, b):\n    return a - b\n\n\ndef one():\n    return 1\n" };
const testsBefore = "import calc\n\n\ndef test_one():\n    assert calc.one() == 1\n";

/** A repository with a function that subtracts where it should add, and the test that shows it. */
export class Calculator implements AsyncDisposable {
  readonly files = {
    fixed: { "calc.py": source["calc.py"].replace("a - b", "a + b") },
    wrong: { "calc.py": source["calc.py"].replace("a - b", "a * b") },
  };
  readonly testsAfter = `${testsBefore}\n\ndef test_add():\n    assert calc.add(1, 2) == 3\n`;
  readonly repository: GitRepository;
  readonly instance: Instance;

  private constructor(repository: GitRepository, instance: Instance) {
    this.repository = repository;
    this.instance = instance;
  }

  static async make(more: Files = {}, task: object = {}): Promise<Calculator> {
    const repository = await GitRepository.make({ ...source, "test_calc.py": testsBefore, ...more });
    const commit = (await repository.git("rev-parse", "HEAD")).trim();
    const after = `${testsBefore}\n\ndef test_add():\n    assert calc.add(1, 2) == 3\n`;
    const instance = instanceOf(repository.path, commit, {
      testPatch: await repository.patch({ "test_calc.py": after }),
      task: {
        test: ["python3", "-m", "pytest", "-rA", "-p", "no:cacheprovider", "test_calc.py"],
        parser: "pytest",
        failToPass: ["test_calc.py::test_add"],
        passToPass: ["test_calc.py::test_one"],
        ...task,
      },
    });
    return new Calculator(repository, instance);
  }

  /** The instance with a prediction that makes these changes. Without changes it is a task that is run as it is. */
  async item(change: Files | string | null, model = "m", instance: Partial<Instance> = {}): Promise<RunItem> {
    const isPatch = typeof change === "string" || change === null;
    const patch = isPatch ? change : await this.repository.patch(change);
    const changed = { ...this.instance, ...instance };
    return { instance: changed, prediction: { instanceId: changed.id, model, patch } };
  }

  withTask(task: Partial<Instance["task"]>): Partial<Instance> {
    return { task: { ...this.instance.task, ...task } };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.repository[Symbol.asyncDispose]();
  }
}
