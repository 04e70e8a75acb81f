import type { Engine } from "@atoll/engine";
import { deadlineAfter, isSandboxError, type EndReason, type SandboxId } from "@atoll/protocol";
import type { SandboxRegistry } from "../manager/sandbox-registry.ts";
import type { CheckpointArchive } from "./checkpoint-archive.ts";
import type { KillSignals } from "./kill-signals.ts";
import type { MetadataCache } from "./metadata-cache.ts";
import type { OwnedLeases } from "./owned-leases.ts";
import type { PersistenceOptions } from "./persistence-options.ts";
import type { SandboxAcquirer } from "./sandbox-acquirer.ts";
import type { SandboxHandle } from "./sandbox-handle.ts";

/** How long a kill waits for other work in the sandbox's queue. */
const turnMs = 5_000;

export interface KillsOptions extends Pick<PersistenceOptions, "self" | "forget" | "emit" | "log" | "notifyServer"> {
  archive: Pick<CheckpointArchive, "removeAll"> | undefined;
  engine: Pick<Engine, "kill">;
  registry: Pick<SandboxRegistry, "get">;
  owned: OwnedLeases;
  kills: KillSignals;
  acquirer: Pick<SandboxAcquirer, "attachToKill">;
  metadataCache: Pick<MetadataCache, "forget">;
}

/** Kills persistent sandboxes, wherever they are. */
export class Kills {
  readonly #options: KillsOptions;

  constructor(options: KillsOptions) {
    this.#options = options;
  }

  /** Removes all that is stored of a sandbox. Returns false if there is none. */
  kill(id: SandboxId, reason: EndReason): Promise<boolean> {
    const { owned, kills, log } = this.#options;
    return kills.whileKilling(id, () => {
      let hasTurn = false;
      let isEmitted = false;
      // If the work in the queue does not end in time, the sandbox is killed here first, and with it what works on it.
      // Until the metadata are marked, a crash of this server leaves what was last stored.
      const killEarly = async (): Promise<void> => {
        if (!hasTurn) isEmitted = await this.#killHere(id, reason);
      };
      const warn = (error: unknown): void => log.warn({ err: error, sandboxId: id }, "sandbox not killed yet");
      deadlineAfter(turnMs).addEventListener("abort", () => void killEarly().catch(warn), { once: true });
      return owned.inTurn(id, async () => {
        hasTurn = true;
        try {
          return await this.#killStored(id, reason, { isEmitted });
        } catch (error) {
          // A store on a full disk accepts the mark after the sandbox's own files there are gone.
          if (!isSandboxError(error, "no_space") || !(await this.#killHere(id, reason))) throw error;
          return this.#killStored(id, reason, { isEmitted: true });
        }
      });
    });
  }

  async #killStored(id: SandboxId, reason: EndReason, { isEmitted = false } = {}): Promise<boolean> {
    const { owned, acquirer } = this.#options;
    const handle = owned.get(id) ?? (await acquirer.attachToKill(id));
    if (handle === undefined) return isEmitted || this.#killHere(id, reason);
    try {
      await this.#killWith(handle, reason, isEmitted);
      return true;
    } catch (error) {
      // A handle that was acquired only for the kill is not renewed by this server.
      if (owned.get(id) !== handle) await handle.release().catch(() => undefined);
      throw error;
    }
  }

  async #killWith(handle: SandboxHandle, reason: EndReason, isEmitted: boolean): Promise<void> {
    const { archive, owned, metadataCache, self, emit, log } = this.#options;
    const { id } = handle;
    const { server } = handle.metadata;
    await handle.markKilled();
    metadataCache.forget(id);
    if (!(await this.#killHere(id, reason)) && !isEmitted) {
      emit({ type: "sandbox.state", sandboxId: id, from: "paused", to: "killed", reason });
    }
    owned.remove(handle);
    // The mark stays for a while, for servers that have a copy. The collector removes it later, and whatever could not
    // be removed now.
    await archive?.removeAll(id).catch((error: unknown) => {
      log.warn({ err: error, sandboxId: id }, "not all of a killed sandbox was removed from the stores");
    });
    await handle.release().catch(() => undefined);
    // The last server of the sandbox may have a copy.
    if (server.id !== self().id) this.#options.notifyServer(server, id);
  }

  /** Kills the local copy. Returns false if there is none. */
  async #killHere(id: SandboxId, reason: EndReason): Promise<boolean> {
    const { registry, forget, engine } = this.#options;
    const managed = registry.get(id);
    if (managed === undefined) return engine.kill(id);
    await managed.kill(reason);
    forget(managed);
    return true;
  }
}
