import type { Engine, Sandbox } from "@atoll/engine";
import type { CreateSandbox, SandboxId } from "@atoll/protocol";
import type { Logger } from "pino";
import { createForOwner } from "../events/acting-principal.ts";
import type { PersistentSandboxes } from "../persistence/persistent-sandboxes.ts";
import type { IdempotencyMark } from "../support/idempotent-calls.ts";
import { storageError } from "../support/storage-error.ts";
import type { ManagedSandbox } from "./managed-sandbox.ts";
import type { Caller } from "./manager-options.ts";
import { launchSandbox, type LauncherOptions } from "./sandbox-launcher.ts";
import { newSettings, saveSettings, type SandboxSettings } from "./sandbox-settings.ts";
import { issueToken } from "./sandbox-token.ts";
import { WarmPool, type PooledShape } from "./warm-pool.ts";

export interface SandboxCreatorOptions extends LauncherOptions {
  engine: Engine;
  pool: readonly PooledShape[];
  manage: (sandbox: Sandbox, facts: SandboxSettings) => ManagedSandbox;
  log: Logger;
  persistent: PersistentSandboxes;
}

/** Creates sandboxes on request, and keeps some ready for later requests. */
export class SandboxCreator {
  readonly pool: WarmPool;
  readonly #options: SandboxCreatorOptions;

  constructor(options: SandboxCreatorOptions) {
    const { engine, pool, log, onEgress, proxyPort } = options;
    this.#options = options;
    this.pool = new WarmPool({
      shapes: pool,
      launch: (shape, signal) => launchSandbox(engine, shape, { onEgress, proxyPort, signal }),
      logger: log,
    });
  }

  /** Creates a sandbox and resolves when it runs; when it rejects, nothing is left. */
  async create(
    request: CreateSandbox,
    by: Caller,
    { mark, isOneOff }: { mark: IdempotencyMark | undefined; isOneOff: boolean },
  ): Promise<{ managed: ManagedSandbox; token: string }> {
    const { engine, onEgress, proxyPort, manage, persistent } = this.#options;
    const { template, driver, limits } = request;
    const shape = { template, driver, limits };
    const { token, stored } = issueToken(mark === undefined ? undefined : by.idempotencyKey);
    const facts = newSettings(request, {
      owner: by.keyId,
      egressCeiling: by.egressCeiling,
      profile: by.profile,
      idempotency: mark,
      isOneOff,
      ...stored,
    });
    const persisted: { id?: SandboxId } = {};
    const save = async (place: Pick<Sandbox, "id" | "ownerDir">): Promise<void> => {
      if (facts.persistent) {
        persisted.id = place.id;
        await persistent.create(place.id, facts);
      }
      // The settings are saved last: a sandbox without settings was never handed out, and is removed at the next start
      // with its metadata.
      await saveSettings(place, facts).catch((error: unknown) => {
        throw storageError(error, "create a sandbox");
      });
    };
    const { files } = by;
    const pooled = files === undefined ? this.pool.take(shape) : undefined;
    try {
      const launch = (): Promise<Sandbox> =>
        launchSandbox(engine, shape, { onEgress, proxyPort, alongside: save, files });
      const sandbox = pooled ?? (await createForOwner(by.keyId, launch));
      await (pooled && save(pooled));
      return { managed: manage(sandbox, facts), token };
    } catch (error) {
      await pooled?.kill({ kind: "server", message: "what the server knows of it could not be stored" });
      if (persisted.id !== undefined) await persistent.discard(persisted.id);
      throw error;
    }
  }
}
