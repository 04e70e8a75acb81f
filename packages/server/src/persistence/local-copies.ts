import { firstToAbort, SandboxError, type SandboxId, type SandboxRecord } from "@atoll/protocol";
import type { ManagedSandbox } from "../manager/managed-sandbox.ts";
import { saveSettings } from "../manager/sandbox-settings.ts";
import type { PersistenceOptions } from "./persistence-options.ts";
import type { SandboxHandle } from "./sandbox-handle.ts";
import type { SandboxMetadata } from "./sandbox-metadata.ts";

/**
 * The relation of a local copy to the metadata. `live`: this server ran the sandbox last, and no other has since; the
 * copy is authoritative, stored or not. `same`: the copy is the checkpoint that is stored. `inherited`: the sandbox was
 * last run by a server whose data directory this is a copy of; the copy is authoritative if that server is gone, and
 * otherwise not. `outdated`: it is none of these.
 */
export type CopyStatus = "live" | "same" | "inherited" | "outdated" | "absent";

/** The local copies of persistent sandboxes: they are fetched when needed and dropped when outdated. */
export class LocalCopies {
  readonly #options: PersistenceOptions;

  constructor(options: PersistenceOptions) {
    this.#options = options;
  }

  find(id: SandboxId): SandboxRecord | undefined {
    return this.#options.engine.list().find((record) => record.id === id);
  }

  async statusOf({ id, state, server, checkpoint }: SandboxMetadata): Promise<CopyStatus> {
    const record = this.find(id);
    if (record === undefined) return "absent";
    if (state === "running") {
      if (server.id === this.#options.self().id) return "live";
      return this.#options.wasSelf(server.id) && !(await this.#isOlder(id, checkpoint)) ? "inherited" : "outdated";
    }
    if (record.state !== "paused" || record.checkpoint !== checkpoint?.n) return "outdated";
    // Numbers are given once, except where a server could not write them to the store.
    const saved = await this.#options.engine.checkpoints(id);
    const isSame = saved.some(({ n, createdAtMs }) => n === checkpoint.n && createdAtMs === checkpoint.createdAtMs);
    return isSame ? "same" : "outdated";
  }

  /** Reports whether the stored checkpoint is newer than the copy. */
  async #isOlder(id: SandboxId, stored: SandboxMetadata["checkpoint"]): Promise<boolean> {
    return stored !== undefined && (await this.#options.engine.nextCheckpoint(id)) <= stored.n;
  }

  /** Removes the local copy. Callers that wait for it get an error that suggests to ask again. */
  async drop(id: SandboxId, because: string): Promise<void> {
    const { engine, registry, forget, emit } = this.#options;
    const managed = registry.get(id);
    managed?.detach(
      new SandboxError("unavailable", `Cannot go on with sandbox ${id} here: ${because}`, {
        suggestion: "Try again: the sandbox is acquired again. Or ask the server that has it.",
        details: { sandboxId: id },
      }),
    );
    if (managed !== undefined) forget(managed);
    if (this.find(id) === undefined) return;
    await engine.release(id);
    await managed?.commands.release();
    emit({ type: "sandbox.copy_dropped", sandboxId: id, because });
  }

  /** Makes the local copy current. When it resolves, the sandbox is in the registry. */
  async ensureCurrent(
    handle: SandboxHandle,
    { signal }: { signal?: AbortSignal | undefined } = {},
  ): Promise<{ managed: ManagedSandbox; status: CopyStatus }> {
    const { id, metadata } = handle;
    const found = await this.statusOf(metadata);
    // The server that had it is silent, and nothing newer is stored: from now on it belongs to this server.
    if (found === "inherited") await handle.write({ server: this.#options.self() });
    const status = found === "inherited" ? "live" : found;
    if (status === "outdated") await this.drop(id, "another server continued it");
    if (status === "outdated" || status === "absent") await this.#fetch(handle, signal);
    return { managed: await this.#manage(metadata, status), status };
  }

  async #fetch({ id, metadata, signal: leased }: SandboxHandle, asked: AbortSignal | undefined): Promise<void> {
    const { archive, onEgress } = this.#options;
    const { checkpoint, record, server } = metadata;
    if (checkpoint === undefined || archive === undefined) {
      throw new SandboxError(
        "unrestorable",
        `Cannot go on with sandbox ${id}: it was never paused, so it was never stored`,
        {
          suggestion:
            `Only server ${server.id} has it: start that server again. ` +
            "A sandbox survives the loss of a server only if it was paused before.",
          details: { sandboxId: id, server },
        },
      );
    }
    using signal = firstToAbort(leased, asked);
    await archive.fetch(id, checkpoint.n, record, {
      signal,
      ...(onEgress === undefined ? {} : { onEgress: onEgress(id) }),
    });
  }

  async #manage({ id, facts }: SandboxMetadata, status: CopyStatus): Promise<ManagedSandbox> {
    const { engine, registry, manage } = this.#options;
    const known = registry.get(id);
    if (known !== undefined) {
      // A server that never runs the sandbox can still change its settings.
      if (status !== "live") await known.adoptSettings(facts);
      return known;
    }
    const sandbox = engine.get(id);
    await saveSettings(sandbox, facts);
    return manage(sandbox, facts, { hasEarlierCommands: true });
  }
}
