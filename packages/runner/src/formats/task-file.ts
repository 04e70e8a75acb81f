import { stat } from "node:fs/promises";
import { basename, extname } from "node:path";
import { SandboxError } from "@atoll/protocol";
import type { RepoSpec } from "../models/sandbox-config.ts";
import { type Instance, TaskSpec } from "../models/task.ts";
import { readPatch, relativeTo } from "./patch-text.ts";
import { check, parseJsonSource, parseTomlSource, parseYamlSource, readTextFile, type Source } from "./source.ts";
import { isTaskFolder, readTaskFolder } from "./terminal-task.ts";

/** Reads a file by the ending of its name: `.json`, `.yaml`, `.yml` or `.toml`. */
export async function readSource(path: string): Promise<Source> {
  const ending = extname(path).toLowerCase();
  const parse = {
    ".json": parseJsonSource,
    ".yaml": parseYamlSource,
    ".yml": parseYamlSource,
    ".toml": parseTomlSource,
  }[ending];
  if (parse === undefined) {
    throw new SandboxError("invalid_argument", `Cannot read ${path}: its name ends with neither .yaml nor .json`, {
      suggestion: "Rename the file after what is in it: .yaml, .yml, .json or .toml.",
    });
  }
  return parse(path, await readTextFile(path));
}

/** Reads what `atoll task run` runs: a file with a task, or a folder of Harbor or terminal-bench. */
export async function readTask(path: string): Promise<Instance> {
  const isDirectory = await stat(path).then(
    (stats) => stats.isDirectory(),
    () => false,
  );
  if (isDirectory) {
    if (await isTaskFolder(path)) return readTaskFolder(path);
    throw new SandboxError("invalid_argument", `Cannot read ${path}: this folder has no task.toml and no task.yaml`, {
      suggestion: "Give the file of a task, or a folder of Harbor or terminal-bench.",
    });
  }
  const task = check(TaskSpec, await readSource(path));
  return taskInstance({ ...task, ...(await readReferences(task, path)) });
}

/** A task as the session runs it. */
export function taskInstance(task: TaskSpec): Instance {
  return {
    id: task.id,
    task,
    repo: task.repo === undefined ? "" : nameOf(task.repo),
    baseCommit: task.repo?.ref ?? "",
    version: "",
    goldPatch: null,
    testPatch: task.testPatch ?? "",
    problemStatement: "",
    createdAt: "",
  };
}

/** Paths in a configuration are relative to its file. */
async function readReferences(task: TaskSpec, file: string): Promise<Partial<TaskSpec>> {
  const { repo, testPatch } = task;
  return {
    ...(testPatch === undefined ? {} : { testPatch: await readPatch(testPatch, file) }),
    ...(repo === undefined
      ? {}
      : {
          repo: {
            ...repo,
            ...(repo.path === undefined ? {} : { path: relativeTo(file, repo.path) }),
            ...(repo.mirror === undefined ? {} : { mirror: relativeTo(file, repo.mirror) }),
            patches: await Promise.all(repo.patches.map((patch) => readPatch(patch, file))),
          },
        }),
  };
}

/** `owner/name` of a URL or a path, as far as they have it. */
function nameOf({ name, url, path }: RepoSpec): string {
  if (name !== undefined) return name;
  const [, owner, last] = /([^/:]+)\/([^/]+?)(?:\.git)?\/?$/.exec(url ?? "") ?? [];
  return owner === undefined ? basename(path ?? url ?? "", ".git") : `${owner}/${last}`;
}
