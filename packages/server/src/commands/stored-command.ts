import { closeSync, constants, mkdirSync, openSync, writeFileSync } from "node:fs";
import { open, readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { CommandId, SandboxId, StreamId } from "@atoll/protocol";
import { z } from "zod";
import { IdempotencyMark } from "../support/idempotent-calls.ts";

/** What is not there any more was removed with its sandbox, and is not made again. */
const appendToExisting = constants.O_WRONLY | constants.O_APPEND;

const start = {
  version: z.literal(1),
  id: CommandId,
  sandboxId: SandboxId,
  /** The number the guest knows it by, reserved before the start. */
  streamId: StreamId,
  name: z.string().optional(),
  argv: z.array(z.string()),
  cwd: z.string(),
  user: z.string(),
  hasPty: z.boolean(),
  hasStdin: z.boolean(),
  keepAlive: z.boolean(),
  tags: z.record(z.string(), z.string()),
  logBytes: z.int(),
  startedAtMs: z.int(),
  timeoutMs: z.int().optional(),
  idempotency: IdempotencyMark.optional(),
};
const end = {
  endedAtMs: z.int(),
  pid: z.int().optional(),
  stdoutBytes: z.int(),
  stderrBytes: z.int(),
  droppedBytes: z.int(),
  stdinBytes: z.int(),
};

/** The stored truth about one command. Its environment is not in it: nobody needs it after the start. */
export const StoredCommand = z.discriminatedUnion("state", [
  z.strictObject({ ...start, state: z.literal("running") }),
  z.strictObject({
    ...start,
    ...end,
    state: z.literal("exited"),
    exitCode: z.int().nullable(),
    signal: z.string().nullable(),
    timedOut: z.boolean(),
    outOfMemory: z.boolean(),
  }),
  z.strictObject({ ...start, ...end, state: z.literal("lost"), because: z.string() }),
]);
export type StoredCommand = z.infer<typeof StoredCommand>;
export type RunningCommand = StoredCommand & { state: "running" };
export type EndedCommand = Exclude<StoredCommand, RunningCommand>;

/**
 * Where the commands of one sandbox lie: `<id>.jsonl` has the start of a command and, on a line of its own, its end;
 * the directory `<id>` has its log, `<id>.input` whose its input is. A line that is added is safe with one write to the
 * disk, where replacing a file takes two. Lines are written without waiting: to hand so few bytes to another thread and
 * to be told of it takes ten times as long as to write them.
 */
export class CommandStore {
  readonly #dir: string;
  #isMade = false;

  constructor(dir: string) {
    this.#dir = dir;
  }

  logDir(id: CommandId): string {
    return join(this.#dir, id);
  }

  /** Whose input the command has; see `InputWriters`. */
  inputFile(id: CommandId): string {
    return join(this.#dir, `${id}.input`);
  }

  /**
   * Before the start. It outlives this process and not the machine, as the sandbox does; half a record, which a crash
   * in here leaves, belongs to a command that was not started.
   */
  saveStart(command: RunningCommand): void {
    if (!this.#isMade) mkdirSync(this.#dir, { recursive: true, mode: 0o700 });
    this.#isMade = true;
    writeFileSync(this.#recordFile(command.id), `${JSON.stringify(command)}\n`, { mode: 0o600, flag: "wx" });
  }

  /** Outlives this process from now on, and the machine from `makeDurable` on. */
  saveEnd(command: EndedCommand): void {
    const file = openSync(this.#recordFile(command.id), appendToExisting);
    try {
      // The line break before it keeps it whole behind the half line of an earlier attempt.
      writeFileSync(file, `\n${JSON.stringify(command)}\n`);
    } finally {
      closeSync(file);
    }
  }

  /** One that was removed meanwhile needs no more. */
  async makeDurable(id: CommandId): Promise<void> {
    const file = await open(this.#recordFile(id), "r").catch(ignoreMissing);
    try {
      await file?.datasync();
    } finally {
      await file?.close();
    }
  }

  async removeLog(id: CommandId): Promise<void> {
    await rm(this.logDir(id), { recursive: true, force: true });
  }

  async remove(id: CommandId): Promise<void> {
    await rm(this.#recordFile(id), { force: true });
    await rm(this.inputFile(id), { force: true });
    await this.removeLog(id);
  }

  /** In the order in which they were started. What has no whole line was never started, and goes. */
  async load(): Promise<StoredCommand[]> {
    const names = await readdir(this.#dir).catch(() => []);
    const ids = new Set(names.flatMap((name) => CommandId.safeParse(name.replace(/\.jsonl$/, "")).data ?? []));
    const commands = await Promise.all([...ids].map((id) => this.#loadOne(id)));
    return commands.filter((command) => command !== undefined).toSorted((a, b) => a.startedAtMs - b.startedAtMs);
  }

  async #loadOne(id: CommandId): Promise<StoredCommand | undefined> {
    const text = await readFile(this.#recordFile(id), "utf8").catch(() => "");
    const lines = text.split("\n").map(parseJson);
    // What another version wrote is not understood, and left alone.
    if (lines.every((line) => line === undefined)) await this.remove(id);
    return lines.map((line) => StoredCommand.safeParse(line).data).findLast((line) => line !== undefined);
  }

  #recordFile(id: CommandId): string {
    return join(this.#dir, `${id}.jsonl`);
  }
}

function ignoreMissing(error: unknown): undefined {
  if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
  throw error;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
