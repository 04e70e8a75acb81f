import { basename, resolve } from "node:path";
import type { TaskSpecInput } from "@atoll/runner";
import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { explain } from "../runner/explain.ts";
import { clientOf, readInput, withOptions } from "../runner/read-input.ts";
import { runItems } from "../runner/run-items.ts";
import { addRunnerOptions, type RunnerOptions } from "../runner/runner-options.ts";
import { addHelpCommand, verb } from "./verb.ts";

interface SmokeOptions extends RunnerOptions {
  ref?: string;
  test?: string;
}

export function taskCommand(cli: Cli): Command {
  const task = addHelpCommand(verb(cli, "task", "Run tasks of repositories in sandboxes"));
  return task.addCommand(runTask(cli)).addCommand(smoke(cli)).addCommand(explainTask(cli));
}

function runTask(cli: Cli): Command {
  const command = verb(cli, "run", "Set a repository up, run its tests and compare the result with what is expected", {
    examples: [
      "atoll task run examples/tasks/hello.yaml",
      "atoll task run task.yaml --repeat 5 --json",
      "atoll task run ./terminal-bench/tasks/hello-world",
    ],
  });
  return addRunnerOptions(command)
    .argument("<config>", "a file with a task, or a folder of Harbor or terminal-bench")
    .action(async (config: string, options: RunnerOptions) => {
      const { readTask } = await import("@atoll/runner");
      const instance = withOptions(await readInput(() => readTask(config)), options);
      const client = clientOf([instance], options);
      await runItems(cli, { items: [{ instance, prediction: null }], options, client, expected: "resolved" });
    });
}

function explainTask(cli: Cli): Command {
  const command = verb(cli, "explain", "Show what a run of a task would do, and why", {
    examples: ["atoll task explain examples/tasks/hello.yaml"],
  });
  return addRunnerOptions(command)
    .argument("<config>", "a file with a task, or a folder of Harbor or terminal-bench")
    .action(async (config: string, options: RunnerOptions) => {
      const { readTask } = await import("@atoll/runner");
      await explain(cli, withOptions(await readInput(() => readTask(config)), options), options);
    });
}

function smoke(cli: Cli): Command {
  const command = verb(cli, "smoke", "Check out a local repository in a sandbox and run one command there", {
    examples: ["atoll task smoke .", "atoll task smoke ../project --ref v1.2 --test 'npm test'"],
  });
  return addRunnerOptions(command)
    .argument("<repository>", "a local repository")
    .option("--ref <ref>", "a commit, tag or branch (default: HEAD)")
    .option("--test <command>", "what has to succeed there (default: a look at the files)")
    .action(async (path: string, options: SmokeOptions) => {
      const { TaskSpec, taskInstance } = await import("@atoll/runner");
      const task: TaskSpecInput = {
        id: `smoke-${basename(resolve(path)).replaceAll(/[^A-Za-z0-9._-]/g, "-")}`,
        repo: { path: resolve(path), ref: options.ref ?? "HEAD" },
        test: options.test ?? 'test -n "$(ls -A)" && ls',
        parser: "exit-code",
        canary: false,
      };
      const instance = withOptions(taskInstance(TaskSpec.parse(task)), options);
      const client = clientOf([instance], options);
      await runItems(cli, { items: [{ instance, prediction: null }], options, client, expected: "resolved" });
    });
}
