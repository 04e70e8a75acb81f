import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { EgressHandler, Engine, Sandbox } from "@atoll/engine";
import type { SandboxForked, SandboxId } from "@atoll/protocol";
import { commandsDir, copyCommands } from "../commands/copy-commands.ts";
import { createForOwner } from "../events/acting-principal.ts";
import type { PersistentSandboxes } from "../persistence/persistent-sandboxes.ts";
import { storageError } from "../support/storage-error.ts";
import type { ManagedSandbox } from "./managed-sandbox.ts";
import type { Caller } from "./manager-options.ts";
import { ranMsOf } from "./run-time.ts";
import { assertNotIsolated } from "./sandbox-isolation.ts";
import { saveSettings, type SandboxSettings } from "./sandbox-settings.ts";
import { issueToken } from "./sandbox-token.ts";

export interface SandboxForksOptions {
  engine: Engine;
  find: (id: SandboxId) => ManagedSandbox;
  manage: (sandbox: Sandbox, facts: SandboxSettings, options: { hasEarlierCommands: boolean }) => ManagedSandbox;
  onEgress: ((sandboxId: SandboxId) => EgressHandler) | undefined;
  persistent: PersistentSandboxes;
}

type ForkCaller = Pick<Caller, "keyId" | "admit" | "egressCeiling">;

interface Copy {
  managed: ManagedSandbox;
  token: string;
}

/**
 * Makes copies of sandboxes, with everything that the server stores about them: policies, timeouts, and the commands
 * that ran.
 */
export class SandboxForks {
  readonly #options: SandboxForksOptions;

  constructor(options: SandboxForksOptions) {
    this.#options = options;
  }

  /** Makes all copies, each with a token of its own, or none. */
  async fork(id: SandboxId, request: { count: number; force: boolean }, by: ForkCaller): Promise<SandboxForked> {
    return this.#options.find(id).transitions.take(() => this.#fork(id, request, by));
  }

  async #fork(
    id: SandboxId,
    { count, force }: { count: number; force: boolean },
    by: ForkCaller,
  ): Promise<SandboxForked> {
    const { persistent, find } = this.#options;
    assertNotIsolated(id, find(id).facts);
    by.admit?.();
    return find(id).facts.persistent
      ? persistent.inTurn(id, async () => {
          const checkpoint = await persistent.reserve(id);
          return this.#copy(find(id), { count, force, checkpoint }, by).catch((error: unknown) => {
            persistent.afterFailedRun(id);
            throw error;
          });
        })
      : this.#copy(find(id), { count, force }, by);
  }

  async #copy(
    parent: ManagedSandbox,
    { count, force, checkpoint: number }: { count: number; force: boolean; checkpoint?: number },
    by: ForkCaller,
  ): Promise<SandboxForked> {
    const { engine, onEgress } = this.#options;
    const { ownerDir } = parent.sandbox;
    // A crash during an earlier fork may have left the directory.
    const kept = join(ownerDir, "forking");
    await rm(kept, { recursive: true, force: true });
    try {
      const forked = await createForOwner(by.keyId, () =>
        engine.fork(parent.id, {
          count,
          force,
          checkpoint: number,
          ...(onEgress === undefined ? {} : { onEgress }),
          // Later, commands of the parent write output that the copies never had.
          whilePaused: () => copyCommands(commandsDir(ownerDir), kept, parent.id),
        }),
      );
      const copies = await this.#adopt(parent, forked.sandboxes, kept, by);
      const { checkpoint, phases, totalMs } = forked;
      const sandboxes = copies.map(({ managed, token }) => ({ sandbox: managed.info(), token }));
      return { sandboxes, checkpoint, phases, totalMs };
    } finally {
      await rm(kept, { recursive: true, force: true });
    }
  }

  async #adopt(parent: ManagedSandbox, sandboxes: Sandbox[], kept: string, by: ForkCaller): Promise<Copy[]> {
    try {
      return await Promise.all(sandboxes.map((sandbox) => this.#adoptOne(parent, sandbox, kept, by)));
    } catch (error) {
      const reason = { kind: "server", message: "what the server knows of it could not be stored" } as const;
      await Promise.allSettled(sandboxes.map((sandbox) => sandbox.kill(reason)));
      await Promise.all(sandboxes.map(({ id }) => this.#options.persistent.discard(id)));
      throw storageError(error, "fork a sandbox");
    }
  }

  async #adoptOne(parent: ManagedSandbox, sandbox: Sandbox, kept: string, by: ForkCaller): Promise<Copy> {
    const { token, stored } = issueToken(undefined);
    const { idempotency: _, hold: __, tokenSalt: ___, resumedAtMs: ____, ...inherited } = parent.facts;
    // A copy goes on with the run time of its parent, so that copying gains nothing.
    const ranMs = await ranMsOf(parent, this.#options.engine);
    const facts: SandboxSettings = {
      ...inherited,
      ...stored,
      ...(ranMs === undefined ? {} : { ranMs }),
      owner: by.keyId,
      egressCeiling: by.egressCeiling,
      createdAtMs: Date.now(),
    };
    await copyCommands(kept, commandsDir(sandbox.ownerDir), sandbox.id);
    if (facts.persistent) await this.#options.persistent.create(sandbox.id, facts);
    await saveSettings(sandbox, facts);
    const managed = this.#options.manage(sandbox, facts, { hasEarlierCommands: true });
    await managed.restoreCommands();
    return { managed, token };
  }
}
