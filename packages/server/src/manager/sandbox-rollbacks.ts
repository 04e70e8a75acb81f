import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { addUp, currentCheckpoint, type Engine, type Sandbox } from "@atoll/engine";
import { deadlineAfter, type SandboxId, type SandboxRolledBack } from "@atoll/protocol";
import type { Logger } from "pino";
import { commandsDir } from "../commands/copy-commands.ts";
import type { NewEvent } from "../events/event-journal.ts";
import { commandsNotKept } from "../persistence/checkpoint-refusal.ts";
import type { PersistentSandboxes } from "../persistence/persistent-sandboxes.ts";
import type { PreparedRollback } from "../persistence/stored-checkpoints.ts";
import { storageError } from "../support/storage-error.ts";
import type { ManagedSandbox } from "./managed-sandbox.ts";
import type { PauseResume } from "./pause-resume.ts";
import { ranMsOf } from "./run-time.ts";
import { assertNotIsolated } from "./sandbox-isolation.ts";
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

/** Rolls sandboxes back to earlier checkpoints, with the commands of that time. The settings stay as they are. */
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
      return pauseResume.rollBackInTurn(managed, () => this.#rollback(managed, checkpoint, force));
    return pauseResume.rollBackInTurn(managed, () =>
      persistent.inTurn(id, async () => {
        const preparation = await persistent.checkpoints.prepareRollback(id, checkpoint);
        try {
          const rolledBack = await this.#rollback(find(id), checkpoint, force, preparation);
          return { ...rolledBack, ...addUp([preparation.timed, rolledBack]) };
        } catch (error) {
          await preparation.abandon();
          persistent.afterFailedRun(id);
          throw error;
        } finally {
          persistent.storeLeftBehind(id);
        }
      }),
    );
  }

  /**
   * Removes a checkpoint. Returns false if there is none of this number; rejects with `in_use` if the sandbox is based
   * on it.
   */
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
    preparation?: PreparedRollback,
  ): Promise<SandboxRolledBack> {
    const { engine, emit, log } = this.#options;
    const { id, sandbox } = managed;
    assertNotIsolated(id, managed.facts);
    const prepared = new PreparedCommands(sandbox.ownerDir);
    await this.#assertKept(id, checkpoint);
    const ranMs = await ranMsOf(managed, engine);
    const { undo, leftAs } = await this.#reserve(managed, checkpoint);
    try {
      const { left, phases, totalMs } = await engine.rollback(id, checkpoint, {
        force,
        ...leftAs,
        prepare: () => prepared.unpack(engine, id, { checkpoint, rollbacks: managed.rollbacks + 1 }),
        switched: async (dropStreams) => {
          // The sandbox was rolled back, so a full disk must not leave it half way.
          await managed.recordRollback(ranMs, preparation?.complete).catch((error: unknown) => {
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
        await undo();
      }
      throw error;
    }
  }

  /** Checks before anything is stopped. The engine reports a checkpoint that does not exist. */
  async #assertKept(id: SandboxId, checkpoint: number): Promise<void> {
    const { engine } = this.#options;
    const isThere = (await engine.checkpoints(id)).some(({ n }) => n === checkpoint);
    if (!isThere) return;
    const { owner } = await engine.checkpointFiles(id, checkpoint);
    if (owner === undefined) throw commandsNotKept(id, checkpoint);
  }

  /** Reserves the run of a persistent sandbox for this server, and the number of the checkpoint that is left behind. */
  async #reserve(
    { id, facts, sandbox }: ManagedSandbox,
    checkpoint: number,
  ): Promise<{ undo: () => Promise<void>; leftAs: { leftAs?: number } }> {
    const { persistent } = this.#options;
    if (!facts.persistent) return { undo: async () => undefined, leftAs: {} };
    const undo = await persistent.prepareToRun(id, { checkpoint });
    // A sandbox that is paused is a checkpoint already, and a failed one has nothing to keep.
    return { undo, leftAs: sandbox.state === "running" ? { leftAs: await persistent.reserveLeftBehind(id) } : {} };
  }
}

/** Completes a rollback that a crash interrupted if the sandbox has switched, and undoes it otherwise. */
export async function recoverRollback(sandbox: Sandbox): Promise<void> {
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
 * The prepared commands. The number of rollbacks is stored with them, because the sandbox may have been counted up when
 * a crash comes; earlier servers did not store it.
 */
interface FoundCommands {
  checkpoint: number;
  rollbacks?: number;
}

/**
 * The commands of a checkpoint, prepared to replace the current ones: `rolling-back/<checkpoint>/commands`, with the
 * new number of rollbacks in `rolling-back/rollbacks`. The directory is removed at the end.
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
      if (!(await engine.unpackOwner(id, checkpoint, all, { signal }))) throw commandsNotKept(id, checkpoint);
      await mkdir(commandsDir(all), { recursive: true, mode: 0o700 });
      await writeFile(this.#rollbacksFile, String(rollbacks));
      await mkdir(join(this.#dir, String(checkpoint)));
      await rename(commandsDir(all), this.#commands(checkpoint));
      await rm(all, { recursive: true });
    } catch (error) {
      throw storageError(error, "roll back");
    }
  }

  /** Replaces the commands. It may be called again after a crash at any point. */
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
    // A directory that was still being unpacked belongs to no checkpoint.
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
