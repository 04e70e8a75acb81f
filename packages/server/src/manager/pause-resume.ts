import type { Engine, PauseResult } from "@atoll/engine";
import {
  deadlineAfter,
  type ListedCheckpoint,
  type SandboxId,
  type SandboxState,
  type SandboxPaused,
  type SandboxResumed,
} from "@atoll/protocol";
import type { Logger } from "pino";
import type { PersistentSandboxes } from "../persistence/persistent-sandboxes.ts";
import type { ManagedSandbox } from "./managed-sandbox.ts";

const proxyTimeoutMs = 10_000;
/** There is nothing to pause of these. */
const asleep: ReadonlySet<SandboxState> = new Set(["paused", "failed", "killing", "killed", "released"]);
/** One that was handed over meanwhile does not run here either. */
const needsWaking: ReadonlySet<SandboxState> = new Set(["pausing", "paused", "resuming", "released"]);

export interface PauseResumeOptions {
  engine: Engine;
  find: (id: SandboxId) => ManagedSandbox;
  /** Of the proxy inside, which a sandbox without its memory has to be given again. */
  proxyPort: number | undefined;
  log: Logger;
  persistent: PersistentSandboxes;
}

/** Pauses sandboxes and brings them back, with everything that the server keeps about them. */
export class PauseResume {
  readonly #options: PauseResumeOptions;
  readonly #waking = new Map<SandboxId, Promise<SandboxResumed>>();
  /** Those that are on their way to another time: whoever wants something of one waits. */
  readonly #moving = new Map<SandboxId, Promise<void>>();

  constructor(options: PauseResumeOptions) {
    this.#options = options;
  }

  async pause(id: SandboxId, { force }: { force: boolean }): Promise<SandboxPaused> {
    const { engine, find, persistent } = this.#options;
    const { facts, moves } = find(id);
    const work = async (save: () => Promise<PauseResult>): Promise<SandboxPaused> => {
      const managed = find(id);
      const { checkpoint, phases, totalMs, ended } = await save();
      managed.clock.stop();
      const reportedEnded = ended.map(({ pid, command }) => ({ pid, command }));
      return { sandbox: managed.info(), checkpoint, ended: reportedEnded, phases, totalMs };
    };
    // Those that last have turns of their own, in which they may be resumed.
    return facts.persistent
      ? persistent.inTurn(id, () => work(() => persistent.pauseInTurn(id, { force })))
      : moves.take(() => work(() => engine.pause(id, { force })));
  }

  /** Refused while it runs, and for one that has failed unless it is without memory. */
  resume(id: SandboxId, { memory }: { memory: boolean }): Promise<SandboxResumed> {
    const managed = this.#options.find(id);
    const { persistent } = this.#options;
    const work = (): Promise<SandboxResumed> => this.#resume(this.#options.find(id), memory);
    const waking = managed.moves
      .take(() => (managed.facts.persistent ? persistent.inTurn(id, work) : work()))
      .finally(() => {
        if (this.#waking.get(id) === waking) this.#waking.delete(id);
      });
    if (!this.#waking.has(id)) this.#waking.set(id, waking);
    return waking;
  }

  /** For one whose turn it is. */
  async resumeInTurn(id: SandboxId): Promise<void> {
    await this.#resume(this.#options.find(id), true);
  }

  /** Brings it back if it is paused, or about to be; of one that runs it asks nothing. */
  async wake(id: SandboxId): Promise<void> {
    const { sandbox } = this.#options.find(id);
    await this.#moving.get(id);
    const { find, persistent } = this.#options;
    // One that comes back from elsewhere is another object than the one that left.
    const isAwake = (): boolean => !needsWaking.has((persistent.has(id) ? find(id).sandbox : sandbox).state);
    if (isAwake() && !this.#waking.has(id)) return;
    try {
      await (this.#waking.get(id) ?? this.resume(id, { memory: true }));
    } catch (error) {
      // A pause that was refused leaves nothing to bring back.
      if (!isAwake()) throw error;
    }
  }

  /** Nothing else moves it meanwhile, and whoever would wake it waits. */
  whileMoving<T>(managed: ManagedSandbox, work: () => Promise<T>): Promise<T> {
    const { id } = managed;
    const moving = managed.moves.take(work);
    const moved = moving.then(
      () => undefined,
      () => undefined,
    );
    this.#moving.set(id, moved);
    void moved.then(() => {
      if (this.#moving.get(id) === moved) this.#moving.delete(id);
    });
    return moving;
  }

  /** All that run. What cannot be paused runs on, and is told in the log. */
  async pauseAll(sandboxes: readonly ManagedSandbox[]): Promise<void> {
    const awake = sandboxes.filter(({ sandbox }) => !asleep.has(sandbox.state));
    await Promise.all(awake.map((managed) => this.pauseAtTimeout(managed)));
  }

  /** False: something stands in the way, and it is tried again after as long; nothing is lost by waiting. */
  async pauseAtTimeout(managed: ManagedSandbox): Promise<boolean> {
    const { id } = managed;
    try {
      const force = false;
      await (managed.facts.persistent
        ? this.#options.persistent.pauseIfHere(id, { force })
        : this.pause(id, { force }));
      return true;
    } catch (error) {
      this.#options.log.warn({ err: error, sandboxId: id }, "sandbox not paused");
      if (managed.sandbox.state === "running") managed.clock.restart();
      return false;
    }
  }

  async checkpoints(id: SandboxId): Promise<ListedCheckpoint[]> {
    const { find, persistent, engine } = this.#options;
    if (find(id).facts.persistent) return persistent.checkpoints.list(id);
    return (await engine.checkpoints(id)).map((info) => ({ ...info, local: true, stored: false }));
  }

  async #resume(managed: ManagedSandbox, memory: boolean): Promise<SandboxResumed> {
    const { engine, proxyPort, persistent } = this.#options;
    const takeBack = managed.facts.persistent ? await persistent.willRun(managed.id, { memory }) : undefined;
    const { checkpoint, phases, totalMs } = await engine
      .resume(managed.id, { memory })
      .catch(async (error: unknown) => {
        await takeBack?.();
        throw error;
      });
    if (!memory && proxyPort !== undefined) {
      await managed.sandbox.startProxy(proxyPort, { signal: deadlineAfter(proxyTimeoutMs) });
    }
    await managed.commands.continueSuspended();
    // A full disk is no reason to tell of a sandbox that runs as if it did not.
    await managed.resumed().catch((error: unknown) => {
      this.#options.log.warn({ err: error, sandboxId: managed.id }, "time of resume not stored");
    });
    const way = persistent.acquirePhases(managed.id);
    const wayMs = Object.values(way).reduce((sum, ms) => sum + ms, 0);
    const resumed = { sandbox: managed.info(), phases: { ...way, ...phases }, totalMs: wayMs + totalMs };
    return checkpoint === undefined ? resumed : { ...resumed, checkpoint };
  }
}
