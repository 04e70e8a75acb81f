import { firstToAbort, SandboxError, type SandboxId, type SandboxRecord } from "@atoll/protocol";
import type { ManagedSandbox } from "../manager/managed-sandbox.ts";
import { saveSettings } from "../manager/sandbox-settings.ts";
import type { PersistenceOptions } from "./persistence-options.ts";
import type { SandboxHandle } from "./sandbox-handle.ts";
import type { SandboxMetadata } from "./sandbox-metadata.ts";

/**
 * What is here of a sandbox, as its metadata have it. `live`: this server ran it last, and nobody else has since; what
 * is here is the truth, stored or not. `same`: it is the checkpoint that is stored. `inherited`: a server ran it last
 * whose data directory this is a copy of: the truth if that server is no more, and otherwise not. `outdated`: it is
 * none of these.
 */
export type CopyWorth = "live" | "same" | "inherited" | "outdated" | "absent";

/**
 * What this machine has of persistent sandboxes: fetched when it is needed, dropped when it is not the truth any more.
 */
export class LocalCopies {
  readonly #options: PersistenceOptions;

  constructor(options: PersistenceOptions) {
    this.#options = options;
  }

  find(id: SandboxId): SandboxRecord | undefined {
    return this.#options.engine.list().find((record) => record.id === id);
  }

  async judge({ id, state, server, checkpoint }: SandboxMetadata): Promise<CopyWorth> {
    const record = this.find(id);
    if (record === undefined) return "absent";
    if (state === "running") {
      if (server.id === this.#options.self().id) return "live";
      return this.#options.wasSelf(server.id) && !(await this.#isBehind(id, checkpoint)) ? "inherited" : "outdated";
    }
    if (record.state !== "paused" || record.checkpoint !== checkpoint?.n) return "outdated";
    // Numbers are given once; this is for those that a server gave without a store to write them down in.
    const saved = await this.#options.engine.checkpoints(id);
    const isSame = saved.some(({ n, createdAtMs }) => n === checkpoint.n && createdAtMs === checkpoint.createdAtMs);
    return isSame ? "same" : "outdated";
  }

  /** Whether the stored one was made after what is here was copied. */
  async #isBehind(id: SandboxId, stored: SandboxMetadata["checkpoint"]): Promise<boolean> {
    return stored !== undefined && (await this.#options.engine.nextCheckpoint(id)) <= stored.n;
  }

  /** Removes all that is here of it. Whoever waits for something of it is told why, and that asking again helps. */
  async drop(id: SandboxId, because: string): Promise<void> {
    const { engine, registry, forget, emit } = this.#options;
    const managed = registry.get(id);
    managed?.detach(
      new SandboxError("unavailable", `Cannot go on with sandbox ${id} here: ${because}`, {
        suggestion: "Ask again: it is brought here, or go to the server that has it.",
        details: { sandboxId: id },
      }),
    );
    if (managed !== undefined) forget(managed);
    if (this.find(id) === undefined) return;
    await engine.release(id);
    await managed?.commands.release();
    emit({ type: "sandbox.copy_dropped", sandboxId: id, because });
  }

  /** Sees to it that what is here is the truth. When it resolves, the sandbox is on the registry. */
  async bring(
    handle: SandboxHandle,
    { signal }: { signal?: AbortSignal | undefined } = {},
  ): Promise<{ managed: ManagedSandbox; worth: CopyWorth }> {
    const { id, metadata } = handle;
    const found = await this.judge(metadata);
    // Whoever had it is silent, and nothing newer is stored: from now on it is this server's own.
    if (found === "inherited") await handle.write({ server: this.#options.self() });
    const worth = found === "inherited" ? "live" : found;
    if (worth === "outdated") await this.drop(id, "another server went on with it");
    if (worth === "outdated" || worth === "absent") await this.#fetch(handle, signal);
    return { managed: await this.#manage(metadata, worth), worth };
  }

  async #fetch({ id, metadata, signal: leased }: SandboxHandle, asked: AbortSignal | undefined): Promise<void> {
    const { archive, onEgress } = this.#options;
    const { checkpoint, record, server } = metadata;
    if (checkpoint === undefined || archive === undefined) {
      throw new SandboxError(
        "unrestorable",
        `Cannot go on with sandbox ${id}: it was never paused, and so never stored`,
        {
          suggestion: `Only server ${server.id} has it: start that one again. What is to survive a server has to be paused now and then.`,
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

  async #manage({ id, facts }: SandboxMetadata, worth: CopyWorth): Promise<ManagedSandbox> {
    const { engine, registry, manage } = this.#options;
    const known = registry.get(id);
    if (known !== undefined) {
      // Facts can be changed by a server that never runs it.
      if (worth !== "live") await known.adoptSettings(facts);
      return known;
    }
    const sandbox = engine.get(id);
    await saveSettings(sandbox, facts);
    return manage(sandbox, facts, { hasEarlierCommands: true });
  }
}
