import { copyFile, cp, mkdir, mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { SandboxError } from "@atoll/protocol";
import { z } from "zod";
import { type Instance, TaskSpec } from "../models/task.ts";
import { git } from "../repository/git.ts";
import { check, parseTomlSource, parseYamlSource, readTextFile } from "./source.ts";

const seconds = z.number().positive();

/** `task.toml` of Harbor. What only its agents need is not looked at. */
const HarborTask = z.looseObject({
  verifier: z
    .looseObject({ timeout_sec: seconds.default(600), env: z.record(z.string(), z.string()).default({}) })
    .prefault({}),
  environment: z
    .looseObject({
      build_timeout_sec: seconds.default(600),
      docker_image: z.string().min(1).optional(),
      cpus: z.number().positive().default(1),
      memory_mb: z.number().positive().default(2048),
      storage_mb: z.number().positive().default(10_240),
      allow_internet: z.boolean().default(true),
    })
    .prefault({}),
});

/** `task.yaml` of terminal-bench 1. */
const TerminalBenchTask = z.looseObject({
  instruction: z.string().default(""),
  parser_name: z.string().default("pytest"),
  max_test_timeout_sec: seconds.default(600),
});

const isFile = (path: string): Promise<boolean> =>
  stat(path).then(
    (stats) => stats.isFile(),
    () => false,
  );

export const isTaskFolder = async (folder: string): Promise<boolean> =>
  (await isFile(join(folder, "task.toml"))) || (await isFile(join(folder, "run-tests.sh")));

/** Where the tests are laid into the work tree. */
const testsFolder = ".atoll-tests";

/**
 * Runs the script of the tests as these systems do, where only the work tree can be written: `/tests` and `/logs`
 * become folders of its own in a copy of the scripts. With a reward, the exit code says whether it is at least 1.
 */
const script = (name: string): string => `
set -u
tests=$(mktemp -d) && cp -R ${testsFolder}/. "$tests" && mkdir -p "$tests/logs/verifier" || exit 126
moved="s#/logs/#$tests/logs/#g; s#\\(^\\|[^A-Za-z0-9_.]\\)/tests\\b#\\1$tests#g"
find "$tests" -type f \\( -name '*.sh' -o -name '*.py' \\) -exec sed -i "$moved" {} +
export TEST_DIR="$tests"
bash "$tests/${name}"
code=$?
reward=$(cat "$tests/logs/verifier/reward.txt" 2>/dev/null) || exit $code
awk -v reward="$reward" 'BEGIN { exit !(reward + 0 >= 1) }'
`;

/** Reads a folder of Harbor or terminal-bench as a task, whose tests fail before it is solved. */
export async function readTaskFolder(folder: string): Promise<Instance> {
  const isHarbor = await isFile(join(folder, "task.toml"));
  const name = basename(folder).replaceAll(/[^A-Za-z0-9._-]/g, "_");
  const given = isHarbor ? await readHarbor(folder) : await readTerminalBench(folder);
  const testPatch = await patchOfTests(folder, isHarbor ? undefined : "run-tests.sh");
  const task = TaskSpec.parse({
    id: name,
    ...given.task,
    test: ["bash", "-c", script(isHarbor ? "test.sh" : "run-tests.sh")],
    expectedFail: true,
    canary: false,
    testPatch,
  });
  return {
    id: name,
    task,
    repo: "",
    baseCommit: "",
    version: "",
    goldPatch: null,
    testPatch,
    problemStatement: given.instruction,
    createdAt: "",
  };
}

async function readHarbor(folder: string) {
  const file = join(folder, "task.toml");
  const { environment, verifier } = check(HarborTask, parseTomlSource(file, await readTextFile(file)));
  const MiB = 1024 * 1024;
  const instruction = join(folder, "instruction.md");
  return {
    instruction: (await isFile(instruction)) ? await readTextFile(instruction) : "",
    task: {
      parser: "exit-code",
      env: verifier.env,
      sandbox: {
        ...(environment.docker_image === undefined ? {} : { client: "docker", image: environment.docker_image }),
        limits: {
          cpus: environment.cpus,
          memoryBytes: Math.round(environment.memory_mb * MiB),
          diskBytes: Math.round(environment.storage_mb * MiB),
        },
        setupTimeoutMs: Math.round(environment.build_timeout_sec * 1000),
        testTimeoutMs: Math.round(verifier.timeout_sec * 1000),
      },
    },
  };
}

async function readTerminalBench(folder: string) {
  const file = join(folder, "task.yaml");
  const task = check(TerminalBenchTask, parseYamlSource(file, await readTextFile(file)));
  return {
    instruction: task.instruction,
    task: {
      parser: task.parser_name === "pytest" ? "pytest" : "auto",
      sandbox: { testTimeoutMs: Math.round(task.max_test_timeout_sec * 1000) },
    },
  };
}

/** The files of `tests/` as a patch that adds them. git writes it, so that modes and binary files are exact. */
async function patchOfTests(folder: string, extraScript: string | undefined): Promise<string> {
  const work = await mkdtemp(join(tmpdir(), "atoll-task-"));
  const read = async (...args: string[]) => {
    const options = { signal: new AbortController().signal, cwd: work, maxOutputBytes: 64 * 1024 * 1024 };
    const { exitCode, stdout, stderr, truncated } = await git(args, options);
    if (exitCode === 0 && !truncated) return stdout;
    throw new SandboxError("file_error", `Cannot read ${folder}: git ${args[0]} failed: ${stderr.slice(0, 500)}`);
  };
  try {
    const target = join(work, testsFolder);
    await mkdir(target);
    await cp(join(folder, "tests"), target, { recursive: true, verbatimSymlinks: true }).catch((cause: unknown) => {
      throw new SandboxError("not_found", `Cannot read ${folder}: it has no folder tests/`, { cause });
    });
    if (extraScript !== undefined) await copyFile(join(folder, extraScript), join(target, extraScript));
    await read("init", "--quiet");
    await read("add", "--all", "--force");
    return await read("diff", "--cached", "--binary", "--no-color", "--no-ext-diff", "--no-renames");
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}
