import { z } from "zod";
import { RepoSpec, SandboxConfig } from "./sandbox-config.ts";

/**
 * The formats of test output that a parser exists for. `auto` looks for a structured file first, then at the text.
 * The forms of pytest differ in how an id is made of a line, as the data sets do.
 */
export const ParserId = z.enum([
  "auto",
  "pytest",
  "pytest-cut",
  "pytest-options",
  "matplotlib",
  "unittest",
  "django",
  "sympy",
  "junit",
  "tap",
  "node-test",
  "mocha",
  "jasmine",
  "jest",
  "jest-files",
  "vitest",
  "karma",
  "exit-code",
]);
export type ParserId = z.infer<typeof ParserId>;

/** A command in a configuration: an argument list, or a line for `bash -c`. */
export const CommandLine = z.union([z.string().min(1), z.array(z.string()).min(1)]);
export type CommandLine = z.infer<typeof CommandLine>;

export const toArgv = (line: CommandLine): string[] => (typeof line === "string" ? ["bash", "-c", line] : line);

/** What makes an environment. Two tasks with equal recipes and repositories share one. */
export const EnvRecipe = z.strictObject({
  /** `auto` chooses by the files of the repository, as instances of data sets need it. */
  language: z.enum(["auto", "python", "node", "none"]).default("none"),
  /** A path, or a version such as `3.9`, which is searched for among the interpreters of the machine. */
  interpreter: z.string().min(1).optional(),
  /** Distributions that are made visible in the environment; nothing else of the system is. */
  packages: z.array(z.string()).default([]),
  /** Run in the work tree after the checkout. Its results are part of the snapshot. */
  install: z.array(CommandLine).default([]),
  env: z.record(z.string(), z.string()).default({}),
  /** Ids of compatibility fixes that are known to be needed. */
  fixes: z.array(z.string()).default([]),
});
export type EnvRecipe = z.infer<typeof EnvRecipe>;

export const TaskSpec = z.strictObject({
  schemaVersion: z.literal(1).default(1),
  id: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,120}$/)
    .default("task"),
  sandbox: SandboxConfig.prefault({}),
  repo: RepoSpec.optional(),
  environment: EnvRecipe.prefault({}),
  setup: z.array(CommandLine).default([]),
  /** The test command. It runs in `sandbox.workdir`. */
  test: CommandLine,
  /** Run before every test command, after the prediction was applied: a build, for example. */
  build: z.array(CommandLine).default([]),
  env: z.record(z.string(), z.string()).default({}),
  parser: ParserId.default("auto"),
  /** A file that the test command writes its structured results to, outside the work tree; `$ATOLL_RESULTS` inside. */
  resultsFile: z.string().optional(),
  /** `true` when the baseline tests are expected to fail, as they do before a fix. */
  expectedFail: z.boolean().default(false),
  /** Without lists, the verdict of a task is whether the test run met `expectedFail`. */
  failToPass: z.array(z.string()).default([]),
  passToPass: z.array(z.string()).default([]),
  /** Only an explicit failure counts, also for tests that are missing from the results. */
  failOnly: z.boolean().default(false),
  /** Laid in after the prediction, in the unified format or as a path of a file. */
  testPatch: z.string().optional(),
  /** `false` for test commands without a runner that the canary can be added to. */
  canary: z.boolean().default(true),
});
export type TaskSpec = z.infer<typeof TaskSpec>;
export type TaskSpecInput = z.input<typeof TaskSpec>;

export const Prediction = z.strictObject({
  instanceId: z.string().min(1),
  model: z.string().min(1).default("unknown"),
  /** `null` and text without a hunk are an empty patch. Bytes as they were read, so that CRLF survives. */
  patch: z.string().nullable(),
});
export type Prediction = z.infer<typeof Prediction>;

/** A task with what a data set adds to it: what `atoll swe` runs. */
export const Instance = z.object({
  id: z.string(),
  task: TaskSpec,
  /** `owner/name`, as the data set has it. */
  repo: z.string(),
  baseCommit: z.string(),
  version: z.string().default(""),
  goldPatch: z.string().nullable().default(null),
  testPatch: z.string().default(""),
  /** What upstream runs and reads its log with, when the data set says so. */
  evalScript: z.string().optional(),
  logParser: z.string().optional(),
  problemStatement: z.string().default(""),
  createdAt: z.string().default(""),
});
export type Instance = z.infer<typeof Instance>;
