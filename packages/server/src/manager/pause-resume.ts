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
import { ranMsOf } from "./run-time.ts";
import { assertNotIsolated } from "./sandbox-isolation.ts";

const proxyTimeoutMs = 10_000;
/** The states in which there is nothing to pause. */
const notRunning: ReadonlySet<SandboxState> = new Set(["paused", "failed", "killing", "killed", "released"]);
/** The states in which a sandbox has to be resumed first. One that was handed over does not run here either. */
const needsWaking: ReadonlySet<SandboxState> = new Set(["pausing", "paused", "resuming", "released"]);

export interface PauseResumeOptions {
  engine: Engine;
  find: (id: SandboxId) => ManagedSandbox;
  /** The port of the proxy inside, which has to be started again in a sandbox without its memory. */
  proxyPort: number | undefined;
  log: Logger;
  persistent: PersistentSandboxes;
}

/** Pauses and resumes sandboxes, with everything that the server stores about them. */
export class PauseResume {
  readonly #options: PauseResumeOptions;
  readonly #waking = new Map<SandboxId, Promise<SandboxResumed>>();
  /** Rollbacks in progress. Requests for these sandboxes wait. */
  readonly #rollbacks = new Map<SandboxId, Promise<void>>();

  constructor(options: PauseResumeOptions) {
    this.#options = options;
  }

  async pause(id: SandboxId, { force }: { force: boolean }): Promise<SandboxPaused> {
    const { engine, find, persistent } = this.#options;
    const { facts, transitions } = find(id);
    const work = async (save: () => Promise<PauseResult>): Promise<SandboxPaused> => {
      const managed = find(id);
      const { checkpoint, phases, totalMs, ended } = await save();
      managed.clock.stop();
      const reportedEnded = ended.map(({ pid, command }) => ({ pid, command }));
      return { sandbox: managed.info(), checkpoint, ended: reportedEnded, phases, totalMs };
    };
    // A persistent sandbox has a queue of its own, in which it may first have to be acquired.
    return facts.persistent
      ? persistent.inTurn(id, () => work(() => persistent.pauseInTurn(id, { force })))
      : transitions.take(() => work(() => engine.pause(id, { force })));
  }

  /** Resumes a sandbox. It is refused while the sandbox runs, and with memory for one that has failed. */
  resume(id: SandboxId, { memory }: { memory: boolean }): Promise<SandboxResumed> {
    const managed = this.#options.find(id);
    const { persistent } = this.#options;
    const work = (): Promise<SandboxResumed> => this.#resume(this.#options.find(id), memory);
    const waking = managed.transitions
      .take(() => (managed.facts.persistent ? persistent.inTurn(id, work) : work()))
      .finally(() => {
        if (this.#waking.get(id) === waking) this.#waking.delete(id);
      });
    if (!this.#waking.has(id)) this.#waking.set(id, waking);
    return waking;
  }

  /** Resumes a sandbox inside its queue. */
  async resumeInTurn(id: SandboxId): Promise<void> {
    await this.#resume(this.#options.find(id), true);
  }

  /** Resumes the sandbox if it is paused, or about to be. A running sandbox is not touched. */
  async wake(id: SandboxId): Promise<void> {
    const { sandbox, facts } = this.#options.find(id);
    assertNotIsolated(id, facts);
    await this.#rollbacks.get(id);
    const { find, persistent } = this.#options;
    // A sandbox that was acquired again is another object than the one that was released.
    const isAwake = (): boolean => !needsWaking.has((persistent.has(id) ? find(id).sandbox : sandbox).state);
    if (isAwake() && !this.#waking.has(id)) return;
    try {
      await (this.#waking.get(id) ?? this.resume(id, { memory: true }));
    } catch (error) {
      // A pause that was refused leaves nothing to resume.
      if (!isAwake()) throw error;
    }
  }

  /** Runs a rollback in the sandbox's queue; calls of `wake` wait for it. */
  rollBackInTurn<T>(managed: ManagedSandbox, work: () => Promise<T>): Promise<T> {
    const { id } = managed;
    const rollback = managed.transitions.take(work);
    const settled = rollback.then(
      () => undefined,
      () => undefined,
    );
    this.#rollbacks.set(id, settled);
    void settled.then(() => {
      if (this.#rollbacks.get(id) === settled) this.#rollbacks.delete(id);
    });
    return rollback;
  }

  /** Pauses all that run. A sandbox that cannot be paused runs on, and the failure is logged. */
  async pauseAll(sandboxes: readonly ManagedSandbox[]): Promise<void> {
    const running = sandboxes.filter(
      ({ sandbox, facts }) => !notRunning.has(sandbox.state) && facts.isolated === undefined,
    );
    await Promise.all(running.map((managed) => this.pauseAtTimeout(managed)));
  }

  /** Returns false if the sandbox cannot be paused now; the clock then starts again, and nothing is lost. */
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
    assertNotIsolated(managed.id, managed.facts);
    const ranMs = await ranMsOf(managed, engine);
    const undo = managed.facts.persistent ? await persistent.prepareToRun(managed.id, { memory }) : undefined;
    const { checkpoint, phases, totalMs } = await engine
      .resume(managed.id, { memory })
      .catch(async (error: unknown) => {
        await undo?.();
        throw error;
      });
    if (!memory && proxyPort !== undefined) {
      await managed.sandbox.startProxy(proxyPort, { signal: deadlineAfter(proxyTimeoutMs) });
    }
    await managed.commands.continueSuspended();
    // The sandbox runs, so a full disk must not make the resume fail.
    await managed.recordResume(ranMs).catch((error: unknown) => {
      this.#options.log.warn({ err: error, sandboxId: managed.id }, "time of resume not stored");
    });
    const acquirePhases = persistent.acquirePhases(managed.id);
    const acquireMs = Object.values(acquirePhases).reduce((sum, ms) => sum + ms, 0);
    const resumed = { sandbox: managed.info(), phases: { ...acquirePhases, ...phases }, totalMs: acquireMs + totalMs };
    return checkpoint === undefined ? resumed : { ...resumed, checkpoint };
  }
}
