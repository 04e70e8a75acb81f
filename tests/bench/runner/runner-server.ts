import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import {
  AtollClient,
  type Instance,
  type InstanceReport,
  type RunItem,
  runInstances,
  type RunReport,
} from "@atoll/runner";
import { taskInstance, TaskSpec, type TaskSpecInput } from "@atoll/runner";
import { Atoll } from "@atoll/sdk";
import { outputOf } from "../host-command.ts";
import { ServerProcess } from "../server/server-process.ts";
import type { Workbench } from "../workbench.ts";

/** Registries of packages may be in the network of the machine, as documentation ranges are used here and there. */
const policy = { egress: { allow: ["*", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "203.0.113.0/24"] } };
const flags = ["--policy", JSON.stringify(policy)];

/** A server and a place for the caches of the runner, as a user of the runner has them. */
export class RunnerServer implements AsyncDisposable {
  readonly server: ServerProcess;
  readonly client: AtollClient;
  readonly atoll: Atoll;
  readonly #bench: Workbench;
  #runs = 0;

  private constructor(bench: Workbench, server: ServerProcess) {
    this.#bench = bench;
    this.server = server;
    this.atoll = new Atoll({ baseUrl: server.url, apiKey: server.key });
    this.client = new AtollClient({ atoll: this.atoll });
  }

  static async start(bench: Workbench): Promise<RunnerServer> {
    return new RunnerServer(bench, await ServerProcess.start({ dir: `${bench.dir}/server`, flags }));
  }

  run(items: readonly RunItem[], options: { jobs?: number; repos?: string } = {}): Promise<RunReport> {
    const { dir, signal } = this.#bench;
    this.#runs += 1;
    const runId = `bench-${this.#runs}`;
    const cacheDirectory = join(dir, "cache");
    return runInstances({
      ...options,
      runId,
      items,
      signal,
      cacheDirectory,
      client: this.client,
      directory: join(dir, "runs", runId),
    });
  }

  /** Runs one item, which has to be resolved. */
  async resolve(item: RunItem): Promise<InstanceReport> {
    const { instances } = await this.run([item]);
    const [instance] = instances;
    if (instance?.verdict !== "resolved") throw new Error(`The task is ${instance?.verdict}: ${instance?.reason}`);
    return instance;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
  }
}

const git = (directory: string, ...args: string[]): Promise<string> =>
  outputOf("git", ["-C", directory, "-c", "user.name=b", "-c", "user.email=b@localhost", ...args]);

/** Makes a repository of these files in a directory that is not there yet, and returns it. */
async function makeRepository(directory: string, files: Readonly<Record<string, string>>): Promise<string> {
  await mkdir(directory, { recursive: true });
  await git(directory, "init", "--quiet");
  for (const [path, content] of Object.entries(files)) await writeFile(join(directory, path), content);
  await git(directory, "add", "--all");
  await git(directory, "commit", "--quiet", "--message", "The files");
  return directory;
}

/** A small project with a bug, the patch that mends it, and the test that shows it. */
export async function smallProject(directory: string): Promise<{ repository: string; patch: string; tests: string }> {
  const files = { "calc.py": "def add(a, b):\n    return a - b\n", "test_calc.py": "import unittest\n" };
  const repository = await makeRepository(directory, files);
  const diffOf = async (path: string, content: string): Promise<string> => {
    await writeFile(join(repository, path), content);
    const patch = await git(repository, "diff");
    await git(repository, "checkout", "--quiet", "--", ".");
    return patch;
  };
  const patch = await diffOf("calc.py", "def add(a, b):\n    return a + b\n");
  const test = "import unittest\nimport calc\n\n\nclass Test(unittest.TestCase):\n    def test_add(self):\n";
  return {
    repository,
    patch,
    tests: await diffOf("test_calc.py", `${test}        self.assertEqual(calc.add(1, 2), 3)\n`),
  };
}

export const testCommand = ["python3", "-m", "unittest", "-v", "test_calc"];

/** The small project as an instance with its fix. `more` changes the task. */
export function smallItem(
  { repository, patch, tests }: Awaited<ReturnType<typeof smallProject>>,
  id: string,
  more: Partial<TaskSpecInput> = {},
): RunItem {
  const task = TaskSpec.parse({
    id,
    repo: { path: repository },
    test: testCommand,
    parser: "unittest",
    failToPass: ["test_add (test_calc.Test.test_add)"],
    ...more,
  });
  const instance: Instance = { ...taskInstance(task), testPatch: tests };
  return { instance, prediction: { instanceId: id, model: "fix", patch } };
}

/** How long the test command of the prediction took. */
export function testTimeOf(report: InstanceReport): number {
  const attempt = report.attempts.find(({ kind }) => kind === "prediction");
  if (attempt?.command === undefined || attempt.command === null) throw new Error("The prediction was not tested");
  return attempt.command.durationMs;
}
