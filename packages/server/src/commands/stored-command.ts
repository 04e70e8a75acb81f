import { closeSync, constants, mkdirSync, openSync, writeFileSync } from "node:fs";
import { open, readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { CommandId, SandboxId, StreamId } from "@atoll/protocol";
import { z } from "zod";
import { IdempotencyMark } from "../support/idempotent-calls.ts";

/** Opens only a file that exists: a missing one was removed with its sandbox and must not be created again. */
const appendToExisting = constants.O_WRONLY | constants.O_APPEND;

const start = {
  version: z.literal(1),
  id: CommandId,
  sandboxId: SandboxId,
  /** The id under which the guest knows it, reserved before the start. */
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

/** A command as it is stored. Its environment is left out, because it is not needed after the start. */
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
 * Stores the commands of one sandbox: `<id>.jsonl` has the start of a command and, on a line of its own, its end; the
 * directory `<id>` has its log, and `<id>.input` has the writers of its input. Appending a line takes one write to the
 * disk, where replacing a file takes two. Lines are written synchronously: passing so few bytes to another thread and
 * waiting for it takes ten times as long as writing them.
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

  /** The file that records which writer sent which input; see `InputWriters`. */
  inputFile(id: CommandId): string {
    return join(this.#dir, `${id}.input`);
  }

  /**
   * Stores a command before its start. The record survives a crash of this process but not one of the machine, as the
   * sandbox does. Half a record, which a crash in here leaves, belongs to a command that was not started.
   */
  saveStart(command: RunningCommand): void {
    if (!this.#isMade) mkdirSync(this.#dir, { recursive: true, mode: 0o700 });
    this.#isMade = true;
    writeFileSync(this.#recordFile(command.id), `${JSON.stringify(command)}\n`, { mode: 0o600, flag: "wx" });
  }

  /** Stores the end. It survives a crash of this process from now on, and one of the machine after `makeDurable`. */
  saveEnd(command: EndedCommand): void {
    const file = openSync(this.#recordFile(command.id), appendToExisting);
    try {
      // The line break before the record keeps it whole behind the half line of an earlier attempt.
      writeFileSync(file, `\n${JSON.stringify(command)}\n`);
    } finally {
      closeSync(file);
    }
  }

  /** Flushes the record to the disk. It does nothing if the command was removed. */
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

  /**
   * Loads the commands in the order in which they were started. A command without a whole line was never started, and
   * is removed.
   */
  async load(): Promise<StoredCommand[]> {
    const names = await readdir(this.#dir).catch(() => []);
    const ids = new Set(names.flatMap((name) => CommandId.safeParse(name.replace(/\.jsonl$/, "")).data ?? []));
    const commands = await Promise.all([...ids].map((id) => this.#loadOne(id)));
    return commands.filter((command) => command !== undefined).toSorted((a, b) => a.startedAtMs - b.startedAtMs);
  }

  async #loadOne(id: CommandId): Promise<StoredCommand | undefined> {
    const text = await readFile(this.#recordFile(id), "utf8").catch(() => "");
    const lines = text.split("\n").map(parseJson);
    // A record of another version is not understood, and left alone.
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
