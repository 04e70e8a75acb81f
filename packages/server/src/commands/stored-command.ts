import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { writeDurably } from "@atoll/engine";
import { CommandId, SandboxId, StreamId } from "@atoll/protocol";
import { z } from "zod";
import { IdempotencyMark } from "../support/idempotent-calls.ts";

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

/** Where the commands of one sandbox lie: a directory each, with the record and the log. */
export class CommandStore {
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
  }

  dir(id: CommandId): string {
    return join(this.#dir, id);
  }

  /**
   * Before the start. It outlives this process and not the machine, as the sandbox does; half a record, which a crash in here leaves, belongs to a
   * command that was not started.
   */
  async saveStart(command: RunningCommand): Promise<void> {
    await mkdir(this.dir(command.id), { recursive: true, mode: 0o700 });
    await writeFile(this.#recordFile(command.id), JSON.stringify(command), { mode: 0o600 });
  }

  /** Outlives the machine. */
  async saveEnd(command: EndedCommand): Promise<void> {
    await writeDurably(this.#recordFile(command.id), JSON.stringify(command));
  }

  async remove(id: CommandId): Promise<void> {
    await rm(this.dir(id), { recursive: true, force: true });
  }

  /** In the order in which they were started. What has no record that can be read was never started, and goes. */
  async load(): Promise<StoredCommand[]> {
    const names = await readdir(this.#dir).catch(() => []);
    const commands = await Promise.all(names.map((name) => this.#loadOne(name)));
    return commands.filter((command) => command !== undefined).toSorted((a, b) => a.startedAtMs - b.startedAtMs);
  }

  async #loadOne(name: string): Promise<StoredCommand | undefined> {
    const id = CommandId.safeParse(name);
    if (!id.success) return undefined;
    try {
      return StoredCommand.parse(JSON.parse(await readFile(this.#recordFile(id.data), "utf8")));
    } catch {
      await this.remove(id.data);
      return undefined;
    }
  }

  #recordFile(id: CommandId): string {
    return join(this.dir(id), "record.json");
  }
}
