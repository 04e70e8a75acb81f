import { SandboxError, type KeyInfo, type RunOnce } from "@atoll/protocol";
import type { Admission } from "../auth/admission.ts";
import type { Command } from "../commands/command.ts";
import type { OneOffRun } from "../manager/one-off-run.ts";
import type { SandboxManager } from "../manager/sandbox-manager.ts";
import { idempotencyMark, IdempotentCalls, type IdempotencyMark } from "../support/idempotent-calls.ts";

/** How long the result of a run with an idempotency key can still be fetched by who lost the answer. */
const keptMs = 60_000;

export interface OneOffCall {
  command: Command;
  /** The answer was given, or nobody waits for it any more. */
  done: () => Promise<void>;
}

/**
 * Runs in sandboxes of their own. Without an idempotency key the run is its caller's: when the caller goes, so does the
 * sandbox. With one it goes on, and whoever repeats the request gets the same run, until a while after its end or until
 * it is let go of; from the next server, that it was lost.
 */
export class OneOffCalls {
  #manager: SandboxManager;
  #admission: Admission;
  #shared = new IdempotentCalls<OneOffRun>();
  #ended = new WeakSet<OneOffRun>();

  constructor(manager: SandboxManager, admission: Admission) {
    this.#manager = manager;
    this.#admission = admission;
  }

  async start(request: RunOnce, key: KeyInfo, idempotencyKey: string | undefined): Promise<OneOffCall> {
    if (idempotencyKey === undefined) {
      const run = await this.#run(request, key, undefined);
      return { command: run.command, done: () => run.end() };
    }
    const mark = idempotencyMark(key.id, idempotencyKey, request);
    this.#manager.lostRuns.assertNotLost(mark);
    const run = await this.#shared.run(mark, async () => {
      const started = await this.#run(request, key, mark);
      this.#removeLater(started, mark);
      return started;
    });
    return { command: run.command, done: async () => undefined };
  }

  /**
   * Who has the result, or does not want it any more, needs the run no longer. Where there is none, nothing happens.
   */
  async end(key: KeyInfo, idempotencyKey: string | undefined): Promise<void> {
    if (idempotencyKey === undefined) {
      throw new SandboxError(
        "invalid_argument",
        "Cannot end a run: its Idempotency-Key says which one, and is missing",
      );
    }
    const mark = idempotencyMark(key.id, idempotencyKey, {});
    await this.#manager.lostRuns.forget(mark);
    const run = await this.#shared.find(mark)?.catch(() => undefined);
    if (run === undefined || this.#ended.has(run)) return;
    this.#ended.add(run);
    this.#shared.forget(mark);
    await run.end();
  }

  async #run(request: RunOnce, key: KeyInfo, mark: IdempotencyMark | undefined): Promise<OneOffRun> {
    const bounds = this.#admission.boundsOf(key);
    bounds.assertDriver(request.driver ?? "gvisor", "run");
    const limits = bounds.limitsFor({}, "run");
    const { egressCeiling } = bounds;
    const { admit, done } = this.#admission.open(key);
    try {
      return await this.#manager.runOnce(request, { keyId: key.id, admit, mark, limits, egressCeiling });
    } finally {
      done();
    }
  }

  #removeLater(run: OneOffRun, mark: IdempotencyMark): void {
    const remove = (): void => {
      const timer = setTimeout(() => {
        // The key may stand for another run by now.
        if (this.#ended.has(run)) return;
        this.#shared.forget(mark);
        // What is left when the server stops is removed by the next one.
        run.end().catch(() => undefined);
      }, keptMs);
      timer.unref();
    };
    run.command.waitEnd().then(remove, remove);
  }
}
