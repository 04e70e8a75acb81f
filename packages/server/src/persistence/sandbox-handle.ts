import { SandboxError, type SandboxId } from "@atoll/protocol";
import {
  FencedObject,
  type HandoverProgress,
  type Lease,
  type LeaseCallbacks,
  type LeaseParty,
  type Leases,
  type ObjectStore,
} from "@atoll/storage";
import { leaseKey, metadataKey } from "./sandbox-keys.ts";
import { SandboxMetadata } from "./sandbox-metadata.ts";

/** The stores of persistent sandboxes. A store is undefined if the setting of its name is `none`. */
export interface SandboxStores {
  metadataStore: ObjectStore | undefined;
  checkpointStore: ObjectStore | undefined;
  leases: Leases | undefined;
}

export interface AttachOptions extends LeaseCallbacks {
  /** How long another server may take to release it; 0 means that it is not asked to. */
  patienceMs: number;
  signal?: AbortSignal | undefined;
  onProgress?: (progress: HandoverProgress) => void;
}

interface RequiredStores {
  metadataStore: ObjectStore;
  leases: Leases;
}

interface LeasedSandbox {
  sandboxStores: RequiredStores;
  lease: Lease;
  metadata: FencedObject<SandboxMetadata>;
}

/**
 * The right of a server to one sandbox, and its metadata. An ephemeral sandbox has neither lease nor metadata. A handle
 * of a persistent one exists only with both, and is of use as long as the lease is current.
 */
export class SandboxHandle {
  readonly id: SandboxId;
  readonly #leased: LeasedSandbox | undefined;

  private constructor(id: SandboxId, leased?: LeasedSandbox) {
    this.id = id;
    this.#leased = leased;
  }

  static createEphemeral(id: SandboxId): SandboxHandle {
    return new SandboxHandle(id);
  }

  /** Acquires the lease of a new sandbox and writes its metadata, durably. When it rejects, neither exists. */
  static async createPersistent(
    sandboxStores: SandboxStores,
    metadata: SandboxMetadata,
    callbacks: LeaseCallbacks,
  ): Promise<SandboxHandle> {
    const { id } = metadata;
    const able = assertCanPersist(sandboxStores, `create sandbox ${id}`);
    const lease = await able.leases.acquire(leaseKey(id), callbacks);
    let handle: SandboxHandle | undefined;
    try {
      const object = await FencedObject.claim(objectOf(able, id), lease);
      if (object.content !== undefined) {
        throw new SandboxError("already_exists", `Cannot create sandbox ${id}: it is stored already`);
      }
      handle = new SandboxHandle(id, { sandboxStores: able, lease, metadata: object });
      await object.write(metadata);
      return handle;
    } catch (error) {
      // A failed write may have been written all the same; metadata that were there before belong to another sandbox.
      await (handle?.remove() ?? lease.release()).catch(() => undefined);
      throw error;
    }
  }

  /**
   * Acquires the lease of a stored sandbox, which fences its metadata. Rejects with `not_found` when there is none, and
   * with `in_use` when another server has it and is not asked, or is already asked by a third one.
   */
  static async attachPersistent(
    sandboxStores: SandboxStores,
    id: SandboxId,
    options: AttachOptions,
  ): Promise<SandboxHandle> {
    const { patienceMs, signal: _, ...rest } = options;
    const able = assertCanPersist(sandboxStores, `use sandbox ${id}`);
    const before = await FencedObject.read(objectOf(able, id), signalOf(options));
    // A sandbox that is gone must not get a lease again.
    if (before === undefined || before.content.isKilled) throw gone(id);
    const acquiring = { ...rest, ...signalOf(options), epochAbove: before.epoch };
    const lease = await (patienceMs > 0
      ? able.leases.waitForHandover(leaseKey(id), { ...acquiring, timeoutMs: patienceMs })
      : able.leases.acquire(leaseKey(id), acquiring));
    try {
      const object = await FencedObject.claim(objectOf(able, id), lease);
      const handle = new SandboxHandle(id, { sandboxStores: able, lease, metadata: object });
      if (object.content === undefined) await handle.remove();
      if (object.content === undefined || object.content.isKilled) throw gone(id);
      return handle;
    } catch (error) {
      await lease.release().catch(() => undefined);
      throw error;
    }
  }

  /**
   * Reads the metadata of a sandbox without its lease, also of one that is being removed. They may be outdated when
   * they arrive.
   */
  static async read(
    sandboxStores: SandboxStores,
    id: SandboxId,
    signal?: AbortSignal,
  ): Promise<SandboxMetadata | undefined> {
    const { metadataStore } = sandboxStores;
    if (metadataStore === undefined) return undefined;
    const found = await FencedObject.read(
      { store: metadataStore, key: metadataKey(id), schema: SandboxMetadata },
      signalOf({ signal }),
    );
    return found?.content;
  }

  /** Handles a notification that another server has written to the lease. */
  static notify({ leases }: SandboxStores, id: SandboxId): void {
    leases?.notify(leaseKey(id));
  }

  get isPersistent(): boolean {
    return this.#leased !== undefined;
  }

  /** True while this server has the sandbox. */
  get isCurrent(): boolean {
    return this.#leased?.lease.isCurrent ?? true;
  }

  /** The metadata as last claimed or written. */
  get metadata(): SandboxMetadata {
    const content = this.#persistent.metadata.content;
    if (content === undefined) throw new Error(`Sandbox ${this.id} has no metadata`);
    return content;
  }

  /** True if the previous lease owner released it, and so was alive then. */
  get wasReleased(): boolean {
    return this.#persistent.lease.origin === "released";
  }

  get epoch(): number {
    return this.#persistent.lease.epoch;
  }

  /** Aborts when the lease is lost or released. */
  get signal(): AbortSignal {
    return this.#persistent.lease.signal;
  }

  /** How long this server surely has it without another renewal. */
  get remainingMs(): number {
    return this.#persistent.lease.remainingMs;
  }

  /** Returns the server that waits for it, as far as is known. */
  findWaiter(): Promise<LeaseParty | undefined> {
    return this.#persistent.lease.lookForWaiter();
  }

  /**
   * Changes these fields and leaves the others as other servers may have written them. Rejects with `lease_lost` when
   * another server may have the lease.
   */
  async write(change: Partial<SandboxMetadata>): Promise<void> {
    await this.#persistent.metadata.update((stored = this.metadata) => ({ ...stored, ...change }));
  }

  /**
   * Marks the sandbox as killed, so that no server acquires it again. Its environment, which may have secrets, is
   * removed at once.
   */
  async markKilled(): Promise<void> {
    await this.write({ isKilled: true, facts: { ...this.metadata.facts, env: {} } });
  }

  /** Releases the lease, so that any server may acquire it. */
  async release(): Promise<void> {
    await this.#persistent.lease.release();
  }

  /** Leaves the lease to the next process of this server. */
  abandon(): void {
    this.#leased?.lease.abandon();
  }

  /** Removes all that is stored about a sandbox that no client knows of; its lease is removed last. */
  async remove(): Promise<void> {
    const { sandboxStores, lease } = this.#persistent;
    lease.abandon();
    await sandboxStores.metadataStore.remove(metadataKey(this.id));
    await sandboxStores.metadataStore.remove(leaseKey(this.id));
  }

  get #persistent(): LeasedSandbox {
    if (this.#leased === undefined) throw new Error(`Sandbox ${this.id} is not persistent`);
    return this.#leased;
  }
}

/** Returns the setting that keeps this server from having persistent sandboxes. */
export function missingSetting({ metadataStore, checkpointStore }: SandboxStores): string | undefined {
  if (metadataStore === undefined) return "metadataStore";
  return checkpointStore === undefined ? "checkpointStore" : undefined;
}

/** Throws `unsupported`, naming the setting, if something that persistent sandboxes need is turned off. */
export function assertCanPersist(sandboxStores: SandboxStores, asked = "create a persistent sandbox"): RequiredStores {
  const { metadataStore, leases } = sandboxStores;
  const setting = missingSetting(sandboxStores);
  if (setting === undefined && metadataStore !== undefined && leases !== undefined) return { metadataStore, leases };
  throw new SandboxError("unsupported", `Cannot ${asked}: this server has no stores for persistent sandboxes`, {
    suggestion: `Its setting ${setting} is none: leave it out, or name a store.`,
    details: { setting },
  });
}

function objectOf({ metadataStore }: RequiredStores, id: SandboxId) {
  return { store: metadataStore, key: metadataKey(id), schema: SandboxMetadata };
}

function signalOf({ signal }: { signal?: AbortSignal | undefined }): { signal?: AbortSignal } {
  return signal === undefined ? {} : { signal };
}

function gone(id: SandboxId): SandboxError {
  return new SandboxError("not_found", `Cannot find sandbox ${id}`, {
    suggestion: "It never existed, or it was killed.",
    details: { sandboxId: id },
  });
}
