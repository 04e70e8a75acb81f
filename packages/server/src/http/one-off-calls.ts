import { SandboxError, type KeyInfo, type RunOnce } from "@atoll/protocol";
import type { Admission } from "../auth/admission.ts";
import type { Command } from "../commands/command.ts";
import type { OneOffRun } from "../manager/one-off-run.ts";
import type { SandboxManager } from "../manager/sandbox-manager.ts";
import { idempotencyMark, IdempotentCalls, type IdempotencyMark } from "../support/idempotent-calls.ts";

/** How long a client that got no reply can still fetch the result of a run with an idempotency key. */
const keptMs = 60_000;

export interface OneOffCall {
  command: Command;
  /** Called when the client has the reply, or no longer waits for it. */
  done: () => Promise<void>;
}

/**
 * Runs each in a sandbox of its own. Without an idempotency key the run belongs to its request: when the client leaves,
 * the sandbox is removed. With a key the run goes on, and a repeated request gets the same run, until some time after
 * its end or until the client ends it. After a restart of the server, a repeated request gets an error that says that
 * the run was lost.
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

  /** Ends the run of a client that has the result or no longer wants it. It does nothing if there is no such run. */
  async end(key: KeyInfo, idempotencyKey: string | undefined): Promise<void> {
    if (idempotencyKey === undefined) {
      throw new SandboxError("invalid_argument", "Cannot end a run: the header Idempotency-Key is missing");
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
    const { profile: asked, driver } = request;
    const { profile, ...terms } = await this.#admission.terms(key, { profile: asked, driver, limits: {} }, "run");
    const { egressCeiling } = this.#admission.boundsOf(key);
    const { admit, done } = this.#admission.open(key);
    try {
      return await this.#manager.runOnce(request, { keyId: key.id, admit, mark, terms, profile, egressCeiling });
    } finally {
      done();
    }
  }

  #removeLater(run: OneOffRun, mark: IdempotencyMark): void {
    const remove = (): void => {
      const timer = setTimeout(() => {
        // The key may belong to another run by now.
        if (this.#ended.has(run)) return;
        this.#shared.forget(mark);
        // The next server removes what is left when this one stops.
        run.end().catch(() => undefined);
      }, keptMs);
      timer.unref();
    };
    run.command.waitEnd().then(remove, remove);
  }
}
