import { z } from "zod";
import { WireError } from "./http.ts";
import { SandboxId, TemplateName } from "./ids.ts";
import { signalNumbers } from "./process.ts";
import { DriverName } from "./sandbox.ts";
import { ProfileName } from "./security-profile.ts";

export const CommandId = z
  .string()
  .regex(/^cmd[a-z0-9]{20}$/, "a command id is cmd and 20 characters of a-z and 0-9")
  .brand<"CommandId">();
export type CommandId = z.infer<typeof CommandId>;

const text = z.string().refine((value) => !value.includes("\0"), "must not contain NUL");

export const RunCommand = z
  .strictObject({
    /** Program and arguments; no shell is involved. */
    argv: z.array(text).min(1).max(4096).optional(),
    /** A line for `bash -c`, or for `sh -c` where there is no bash. */
    shell: text.min(1).optional(),
    name: z.string().min(1).max(63).optional(),
    cwd: text.default(""),
    env: z.record(z.string().regex(/^[^=\0]+$/), text).default({}),
    user: text.default("user"),
    /** The command, and every process that it started, is ended after this time. Absent: there is no limit. */
    timeoutMs: z.int().min(1).max(0xffff_ffff).optional(),
    pty: z.strictObject({ rows: z.int().min(1).max(65_535), cols: z.int().min(1).max(65_535) }).optional(),
    stdin: z.boolean().default(false),
    /** Whether the answer comes when the command has started, and not when it has ended. */
    background: z.boolean().default(false),
    /**
     * Whether the sandbox counts as busy while this command, or any process that it left behind, runs. If not, the
     * sandbox may be idle, as is right for a server that waits for connections.
     */
    keepAlive: z.boolean().default(true),
    tags: z.record(z.string().min(1).max(63), z.string().max(255)).default({}),
    /** How many bytes of output are kept: the first quarter of them from the beginning, the rest from the end. */
    logBytes: z
      .int()
      .min(64 * 1024)
      .max(1024 * 1024 * 1024)
      .default(16 * 1024 * 1024),
  })
  .refine(({ argv, shell }) => (argv === undefined) !== (shell === undefined), "give either argv or shell");
export type RunCommand = z.output<typeof RunCommand>;
export type RunCommandInput = z.input<typeof RunCommand>;

/**
 * `lost` means that the end of the command cannot be known, and `lostBecause` has the reason. An exit code is never
 * made up.
 */
export const CommandState = z.enum(["running", "exited", "lost"]);

export const CommandInfo = z.strictObject({
  id: CommandId,
  sandboxId: SandboxId,
  name: z.string().optional(),
  argv: z.array(z.string()),
  cwd: z.string(),
  user: z.string(),
  hasPty: z.boolean(),
  hasStdin: z.boolean(),
  keepAlive: z.boolean(),
  tags: z.record(z.string(), z.string()),
  pid: z.int().optional(),
  state: CommandState,
  exitCode: z.int().nullable(),
  signal: z.string().nullable(),
  timedOut: z.boolean(),
  /** The command failed, and the sandbox ran out of memory while it ran. */
  outOfMemory: z.boolean().optional(),
  lostBecause: z.string().optional(),
  startedAtMs: z.int(),
  endedAtMs: z.int().optional(),
  /** How many bytes the command has written, and how many of those the log no longer has. */
  stdoutBytes: z.int(),
  stderrBytes: z.int(),
  droppedBytes: z.int(),
  /** How many bytes of input have been accepted: the offset of the next `stdin`. */
  stdinBytes: z.int(),
  /** How often the sandbox has been rolled back so far; absent if never. Offsets start again at 0 each time. */
  rollbacks: z.int().optional(),
});
export type CommandInfo = z.infer<typeof CommandInfo>;

/** The result of a finished command, and its output as far as the log has it. */
export const CommandResult = z.strictObject({
  command: CommandInfo,
  stdout: z.string(),
  stderr: z.string(),
  /** How many bytes are missing from the middle of the two streams together. */
  droppedBytes: z.int(),
});
export type CommandResult = z.infer<typeof CommandResult>;

/**
 * A line of a streamed command. `at` counts the bytes of both streams in their common order: to read on later, start
 * from `at` plus the bytes of the last line. Output is `text` where it is whole UTF-8, and `base64` otherwise.
 */
export const CommandLine = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("started"), command: CommandInfo }),
  z.strictObject({
    type: z.enum(["stdout", "stderr"]),
    at: z.int(),
    offset: z.int(),
    text: z.string().optional(),
    base64: z.string().optional(),
  }),
  /** The log no longer has these bytes. */
  z.strictObject({ type: z.literal("dropped"), at: z.int(), bytes: z.int() }),
  z.strictObject({ type: z.literal("heartbeat"), atMs: z.int() }),
  /** The server is shutting down: reconnect, and read on from where this stream ends. */
  z.strictObject({ type: z.literal("shutdown") }),
  z.strictObject({ type: z.literal("ended"), command: CommandInfo }),
  /**
   * The stream ends because the reader's key was revoked, or because the command is past its time limit and the guest
   * does not answer.
   */
  z.strictObject({ type: z.literal("refused"), error: WireError }),
]);
export type CommandLine = z.infer<typeof CommandLine>;

export const SendSignal = z.strictObject({
  signal: z
    .enum(Object.keys(signalNumbers) as [keyof typeof signalNumbers, ...(keyof typeof signalNumbers)[]])
    .default("SIGTERM"),
});
export const ResizeTerminal = z.strictObject({ rows: z.int().min(1).max(65_535), cols: z.int().min(1).max(65_535) });

/**
 * The client that writes input, under a name that no other client has, such as a random one. The server uses it to
 * distinguish a writer's retry from the input of another writer.
 */
export const InputWriter = z
  .string()
  .regex(/^[\w-]{1,64}$/, "a writer is 1 to 64 characters of a-z, A-Z, 0-9, _ and -");

/** `writerBytes` counts the bytes that this writer gave: the offset of its next input. */
export const StdinAccepted = z.strictObject({ stdinBytes: z.int(), writerBytes: z.int().optional() });
export type StdinAccepted = z.infer<typeof StdinAccepted>;

/** Text, or any bytes in base64. */
export const RunContent = z.union([
  z.string(),
  z.strictObject({
    base64: z
      .string()
      .refine((value) => value.length % 4 === 0 && !/[^A-Za-z0-9+/=]/.test(value), "bytes are base64 with padding"),
  }),
]);
export type RunContent = z.output<typeof RunContent>;

const longestInput = 16 * 1024 * 1024;

/** A one-off run: a sandbox that lives for one command. */
export const RunOnce = z
  .strictObject({
    language: z.enum(["python", "javascript", "typescript", "bash"]).optional(),
    code: z
      .string()
      .max(1024 * 1024)
      .optional(),
    argv: z.array(text).min(1).max(4096).optional(),
    template: TemplateName.optional(),
    driver: DriverName.optional(),
    /** What the run may use and do; when left out, the profile of the key or the server, or `standard`. */
    profile: ProfileName.optional(),
    env: z.record(z.string().regex(/^[^=\0]+$/), text).default({}),
    /** The files that are written into the home directory before the run. */
    files: z.record(z.string().min(1).max(1024), RunContent).default({}),
    stdin: RunContent.refine(
      (given) => (typeof given === "string" ? given.length : given.base64.length * 0.75 - 2) <= longestInput,
      "input is at most 16 MiB",
    ).optional(),
    timeoutMs: z
      .int()
      .min(1)
      .max(24 * 3_600_000)
      .default(60_000),
  })
  .refine(
    ({ language, code, argv }) =>
      argv === undefined ? language !== undefined && code !== undefined : language === undefined,
    {
      message: "give language and code, or argv",
    },
  );
export type RunOnce = z.output<typeof RunOnce>;
export type RunOnceInput = z.input<typeof RunOnce>;
