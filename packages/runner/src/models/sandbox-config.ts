import { z } from "zod";

const MiB = 1024 * 1024;

export const SandboxLimits = z.strictObject({
  memoryBytes: z
    .int()
    .min(64 * MiB)
    .default(2048 * MiB),
  cpus: z.number().min(0.05).default(1),
  processes: z.int().min(8).default(1024),
  diskBytes: z
    .int()
    .min(MiB)
    .default(8192 * MiB),
  tmpBytes: z
    .int()
    .min(MiB)
    .default(512 * MiB),
});
export type SandboxLimits = z.infer<typeof SandboxLimits>;

/** Where and with what a task runs. */
export const SandboxConfig = z.strictObject({
  client: z.enum(["atoll", "docker"]).default("atoll"),
  /** A template of the Atoll server. */
  template: z.string().min(1).default("host"),
  /** An image of the container engine; only with `client: docker`. */
  image: z.string().min(1).optional(),
  /** Part of the sandbox's name and labels, for a person who lists sandboxes. */
  name: z
    .string()
    .regex(/^[a-z0-9][a-z0-9._-]{0,40}$/, "lower-case letters, digits, '.', '_' and '-'")
    .optional(),
  workdir: z.string().startsWith("/").default("/testbed"),
  env: z.record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/), z.string()).default({}),
  /** Hosts that commands may reach during set-up; tests have no network unless `testNetwork` is set. */
  network: z.array(z.string()).default([]),
  testNetwork: z.boolean().default(false),
  limits: SandboxLimits.prefault({}),
  commandTimeoutMs: z.int().min(1).default(300_000),
  setupTimeoutMs: z.int().min(1).default(1_800_000),
  testTimeoutMs: z.int().min(1).default(1_800_000),
});
export type SandboxConfig = z.infer<typeof SandboxConfig>;

/** A repository at a commit. Exactly one of `url`, `path` and `mirror` says where it comes from. */
export const RepoSpec = z
  .strictObject({
    url: z.string().min(1).optional(),
    /** A local repository, bare or with a work tree. */
    path: z.string().min(1).optional(),
    /** A folder of clones, in which the repository has the name `owner__name.git`, `owner__name` or `owner/name`. */
    mirror: z.string().min(1).optional(),
    /** `owner/name`: needed with `mirror`, and used to choose a recipe. */
    name: z.string().min(1).optional(),
    /** A commit, tag or branch. */
    ref: z.string().min(1).default("HEAD"),
    /** Patches to apply in order after the checkout, as text in the unified format or as paths of files. */
    patches: z.array(z.string()).default([]),
    compat: z
      .strictObject({
        mode: z.enum(["off", "suggest", "auto"]).default("auto"),
        /** Ids of fixes that are applied from the start. */
        apply: z.array(z.string()).default([]),
        /** Ids of fixes that are never applied. */
        never: z.array(z.string()).default([]),
        allowBehaviourChanges: z.boolean().default(false),
      })
      .prefault({}),
  })
  .refine((spec) => [spec.url, spec.path, spec.mirror].filter((source) => source !== undefined).length === 1, {
    message: "exactly one of url, path and mirror says where the repository is",
  });
export type RepoSpec = z.infer<typeof RepoSpec>;
