import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { addUp, currentCheckpoint, type Engine, type Sandbox } from "@atoll/engine";
import { deadlineAfter, type SandboxId, type SandboxRolledBack } from "@atoll/protocol";
import type { Logger } from "pino";
import { commandsDir } from "../commands/copy-commands.ts";
import type { NewEvent } from "../events/event-journal.ts";
import { nothingKept } from "../persistence/checkpoint-refusal.ts";
import type { PersistentSandboxes } from "../persistence/persistent-sandboxes.ts";
import type { WayBack } from "../persistence/stored-checkpoints.ts";
import { storageError } from "../support/storage-error.ts";
import type { ManagedSandbox } from "./managed-sandbox.ts";
import type { PauseResume } from "./pause-resume.ts";
import { loadSettings, saveSettings } from "./sandbox-settings.ts";

const unpackTimeoutMs = 10 * 60_000;

export interface SandboxRollbacksOptions {
  engine: Engine;
  pauseResume: PauseResume;
  persistent: PersistentSandboxes;
  find: (id: SandboxId) => ManagedSandbox;
  emit: (event: NewEvent) => void;
  log: Logger;
}

/**
 * Takes sandboxes back to earlier checkpoints, with the commands of that time. What else the server knows of them stays
 * as it is now.
 */
export class SandboxRollbacks {
  readonly #options: SandboxRollbacksOptions;

  constructor(options: SandboxRollbacksOptions) {
    this.#options = options;
  }

  async rollback(
    id: SandboxId,
    { checkpoint, force }: { checkpoint: number; force: boolean },
  ): Promise<SandboxRolledBack> {
    const { pauseResume, persistent, find } = this.#options;
    const managed = find(id);
    if (!managed.facts.persistent)
      return pauseResume.whileMoving(managed, () => this.#rollback(managed, checkpoint, force));
    return pauseResume.whileMoving(managed, () =>
      persistent.inTurn(id, async () => {
        const way = await persistent.checkpoints.wayBackTo(id, checkpoint);
        try {
          const rolledBack = await this.#rollback(find(id), checkpoint, force, way);
          return { ...rolledBack, ...addUp([way.timed, rolledBack]) };
        } catch (error) {
          await way.left();
          persistent.fellShort(id);
          throw error;
        } finally {
          persistent.storeLeftBehind(id);
        }
      }),
    );
  }

  /** False if there is none of this number. Rejects with `in_use` for the one that the sandbox stands on. */
  async removeCheckpoint(id: SandboxId, checkpoint: number): Promise<boolean> {
    const { engine, find, emit, persistent } = this.#options;
    const { facts } = find(id);
    const remove = (): Promise<boolean> => engine.removeCheckpoint(id, checkpoint);
    const isRemoved = await (facts.persistent
      ? persistent.inTurn(id, () => persistent.checkpoints.remove(id, checkpoint, remove))
      : remove());
    if (isRemoved) emit({ type: "checkpoint.removed", sandboxId: id, checkpoint });
    return isRemoved;
  }

  async #rollback(
    managed: ManagedSandbox,
    checkpoint: number,
    force: boolean,
    way?: WayBack,
  ): Promise<SandboxRolledBack> {
    const { engine, emit, log } = this.#options;
    const { id, sandbox } = managed;
    const prepared = new PreparedCommands(sandbox.ownerDir);
    await this.#assertKept(id, checkpoint);
    const { takeBack, leftAs } = await this.#reserve(managed, checkpoint);
    try {
      const { left, phases, totalMs } = await engine.rollback(id, checkpoint, {
        force,
        ...leftAs,
        prepare: () => prepared.unpack(engine, id, { checkpoint, rollbacks: managed.rollbacks + 1 }),
        switched: async (dropStreams) => {
          // A full disk is no reason to leave it between two times.
          await managed.rolledBack(way?.taken).catch((error: unknown) => {
            log.warn({ err: error, sandboxId: id }, "rollback not stored");
          });
          await managed.commands.rollBack(dropStreams, () => prepared.take(checkpoint));
        },
      });
      const event = { type: "sandbox.rolled_back", sandboxId: id, checkpoint } as const;
      emit(left === undefined ? event : { ...event, left });
      return { sandbox: managed.info(), checkpoint, ...(left === undefined ? {} : { left }), phases, totalMs };
    } catch (error) {
      if (sandbox.state === "paused") {
        managed.clock.stop();
        await prepared.remove();
        await takeBack();
      }
      throw error;
    }
  }

  /** Before anything is stopped. Of one that is not there the engine tells. */
  async #assertKept(id: SandboxId, checkpoint: number): Promise<void> {
    const { engine } = this.#options;
    const isThere = (await engine.checkpoints(id)).some(({ n }) => n === checkpoint);
    if (!isThere) return;
    const { owner } = await engine.checkpointFiles(id, checkpoint);
    if (owner === undefined) throw nothingKept(id, checkpoint);
  }

  /** One that lasts is this server's to run, and no other server uses the number of what is left behind. */
  async #reserve(
    { id, facts, sandbox }: ManagedSandbox,
    checkpoint: number,
  ): Promise<{ takeBack: () => Promise<void>; leftAs: { leftAs?: number } }> {
    const { persistent } = this.#options;
    if (!facts.persistent) return { takeBack: async () => undefined, leftAs: {} };
    const takeBack = await persistent.willRun(id, { checkpoint });
    // Nothing is left behind of one that is paused, which is a checkpoint already, or has failed.
    return { takeBack, leftAs: sandbox.state === "running" ? { leftAs: await persistent.reserveLeft(id) } : {} };
  }
}

/** Finishes what a crash has left of a rollback if the sandbox is there already, and undoes it if not. */
export async function settleRollback(sandbox: Sandbox): Promise<void> {
  const prepared = new PreparedCommands(sandbox.ownerDir);
  const current = currentCheckpoint(sandbox.record);
  const found = await prepared.find();
  if (found === undefined) return;
  if (found.checkpoint === current) {
    const facts = await loadSettings(sandbox);
    if (facts !== undefined) {
      const { rollbacks = (facts.rollbacks ?? 0) + 1 } = found;
      await saveSettings(sandbox, { ...facts, rollbacks });
    }
    await prepared.take(found.checkpoint);
  }
  await prepared.remove();
}

/**
 * As which rollback it is counted is told from when all of it is there, since the sandbox may have been counted up when
 * a crash comes; servers before this one did not tell.
 */
interface FoundCommands {
  checkpoint: number;
  rollbacks?: number;
}

/**
 * The commands of a checkpoint, ready to take the place of those that are there: `rolling-back/<checkpoint>/commands`,
 * beside it in `rollbacks` how often the sandbox has been rolled back then, and nothing when that is done.
 */
class PreparedCommands {
  readonly #ownerDir: string;
  readonly #dir: string;

  constructor(ownerDir: string) {
    this.#ownerDir = ownerDir;
    this.#dir = join(ownerDir, "rolling-back");
  }

  async unpack(engine: Engine, id: SandboxId, { checkpoint, rollbacks }: Required<FoundCommands>): Promise<void> {
    await this.remove();
    const all = join(this.#dir, "all");
    const signal = deadlineAfter(unpackTimeoutMs);
    try {
      await mkdir(all, { recursive: true, mode: 0o700 });
      if (!(await engine.unpackOwner(id, checkpoint, all, { signal }))) throw nothingKept(id, checkpoint);
      await mkdir(commandsDir(all), { recursive: true, mode: 0o700 });
      await writeFile(this.#rollbacksFile, String(rollbacks));
      await mkdir(join(this.#dir, String(checkpoint)));
      await rename(commandsDir(all), this.#commands(checkpoint));
      await rm(all, { recursive: true });
    } catch (error) {
      throw storageError(error, "roll back");
    }
  }

  /** Whatever of it was done before, it is done afterwards. */
  async take(checkpoint: number): Promise<void> {
    const names = await namesIn(join(this.#dir, String(checkpoint)));
    if (names.includes("commands")) {
      await rm(commandsDir(this.#ownerDir), { recursive: true, force: true });
      await rename(this.#commands(checkpoint), commandsDir(this.#ownerDir));
    }
    await this.remove();
  }

  async find(): Promise<FoundCommands | undefined> {
    const names = await namesIn(this.#dir);
    if (names.length === 0) return undefined;
    // One that was being unpacked is that of no checkpoint yet.
    const checkpoint = names.includes("all") ? 0 : Number(names.find((name) => /^\d+$/.test(name)) ?? 0);
    if (!names.includes("rollbacks")) return { checkpoint };
    return { checkpoint, rollbacks: Number(await readFile(this.#rollbacksFile, "utf8")) };
  }

  async remove(): Promise<void> {
    await rm(this.#dir, { recursive: true, force: true });
  }

  get #rollbacksFile(): string {
    return join(this.#dir, "rollbacks");
  }

  #commands(checkpoint: number): string {
    return commandsDir(join(this.#dir, String(checkpoint)));
  }
}

async function namesIn(directory: string): Promise<string[]> {
  return readdir(directory).catch((error: unknown) => {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return [];
    throw error;
  });
}
