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

/** What a server keeps persistent sandboxes with. Undefined: the setting of that name says `none`. */
export interface HandleHome {
  metadataStore: ObjectStore | undefined;
  checkpointStore: ObjectStore | undefined;
  leases: Leases | undefined;
}

export interface AttachOptions extends LeaseCallbacks {
  /** How long another server may take to give it back; 0: it is not asked to. */
  patienceMs: number;
  signal?: AbortSignal | undefined;
  onProgress?: (progress: HandoverProgress) => void;
}

interface Home {
  metadataStore: ObjectStore;
  leases: Leases;
}

interface Hold {
  home: Home;
  lease: Lease;
  metadata: FencedObject<SandboxMetadata>;
}

/**
 * A server's right to one sandbox, and all that is written about it. An ephemeral sandbox is nobody else's: there is
 * nothing to know. A persistent one has metadata and a lease; a handle of it exists only with both, and is of use as
 * long as the lease is current.
 */
export class SandboxHandle {
  readonly id: SandboxId;
  readonly #hold: Hold | undefined;

  private constructor(id: SandboxId, hold?: Hold) {
    this.id = id;
    this.#hold = hold;
  }

  static createEphemeral(id: SandboxId): SandboxHandle {
    return new SandboxHandle(id);
  }

  /** Takes the lease of a new sandbox and writes its metadata, durably. When it rejects, there is neither. */
  static async createPersistent(
    home: HandleHome,
    metadata: SandboxMetadata,
    callbacks: LeaseCallbacks,
  ): Promise<SandboxHandle> {
    const { id } = metadata;
    const able = assertCanPersist(home, `create sandbox ${id}`);
    const lease = await able.leases.acquire(leaseKey(id), callbacks);
    let handle: SandboxHandle | undefined;
    try {
      const object = await FencedObject.claim(objectOf(able, id), lease);
      if (object.content !== undefined) {
        throw new SandboxError("already_exists", `Cannot create sandbox ${id}: it is stored already`);
      }
      handle = new SandboxHandle(id, { home: able, lease, metadata: object });
      await object.write(metadata);
      return handle;
    } catch (error) {
      // What was not to be written may have been written all the same; what was there before is somebody else's.
      await (handle?.remove() ?? lease.release()).catch(() => undefined);
      throw error;
    }
  }

  /**
   * Takes the lease of a sandbox that is stored, and with it the last word on its metadata. Rejects with `not_found`
   * when there is none, and with `in_use` when another server has it and is not asked, or is asked by a third one
   * already.
   */
  static async attachPersistent(home: HandleHome, id: SandboxId, options: AttachOptions): Promise<SandboxHandle> {
    const { patienceMs, signal: _, ...rest } = options;
    const able = assertCanPersist(home, `use sandbox ${id}`);
    const before = await FencedObject.read(objectOf(able, id), signalOf(options));
    // What is gone must not get a lease again.
    if (before === undefined || before.content.isKilled) throw gone(id);
    const acquiring = { ...rest, ...signalOf(options), epochAbove: before.epoch };
    const lease = await (patienceMs > 0
      ? able.leases.waitForHandover(leaseKey(id), { ...acquiring, timeoutMs: patienceMs })
      : able.leases.acquire(leaseKey(id), acquiring));
    try {
      const object = await FencedObject.claim(objectOf(able, id), lease);
      const handle = new SandboxHandle(id, { home: able, lease, metadata: object });
      if (object.content === undefined) await handle.remove();
      if (object.content === undefined || object.content.isKilled) throw gone(id);
      return handle;
    } catch (error) {
      await lease.release().catch(() => undefined);
      throw error;
    }
  }

  /**
   * What is stored of a sandbox, also of one that is being removed, for anybody. It may be outdated when it arrives.
   */
  static async read(home: HandleHome, id: SandboxId, signal?: AbortSignal): Promise<SandboxMetadata | undefined> {
    const { metadataStore } = home;
    if (metadataStore === undefined) return undefined;
    const found = await FencedObject.read(
      { store: metadataStore, key: metadataKey(id), schema: SandboxMetadata },
      signalOf({ signal }),
    );
    return found?.content;
  }

  /** Another server says that it has written to the lease. */
  static notify({ leases }: HandleHome, id: SandboxId): void {
    leases?.notify(leaseKey(id));
  }

  get isPersistent(): boolean {
    return this.#hold !== undefined;
  }

  /** Whether this server has the sandbox at this moment. */
  get isCurrent(): boolean {
    return this.#hold?.lease.isCurrent ?? true;
  }

  /** As last claimed or written. */
  get metadata(): SandboxMetadata {
    const content = this.#held.metadata.content;
    if (content === undefined) throw new Error(`Sandbox ${this.id} has no metadata`);
    return content;
  }

  /** The one who had it before gave it up by itself, and so was there to do so. */
  get wasGivenBack(): boolean {
    return this.#held.lease.origin === "released";
  }

  get epoch(): number {
    return this.#held.lease.epoch;
  }

  /** Aborted when the lease is lost or given back. */
  get signal(): AbortSignal {
    return this.#held.lease.signal;
  }

  /** For how long this server surely has it without another renewal. */
  get remainingMs(): number {
    return this.#held.lease.remainingMs;
  }

  /** Who waits for it at this moment, as far as is known. */
  findWaiter(): Promise<LeaseParty | undefined> {
    return this.#held.lease.lookForWaiter();
  }

  /**
   * Changes these and leaves the rest as others have written it meanwhile. Rejects with `lease_lost` when another
   * server may have it.
   */
  async write(change: Partial<SandboxMetadata>): Promise<void> {
    await this.#held.metadata.update((stored = this.metadata) => ({ ...stored, ...change }));
  }

  /** Nobody may have it again. What programs inside were given goes at once. */
  async markKilled(): Promise<void> {
    await this.write({ isKilled: true, facts: { ...this.metadata.facts, env: {} } });
  }

  /** Any server may have it from now on. */
  async release(): Promise<void> {
    await this.#held.lease.release();
  }

  /** Leaves it to the next process of this server. */
  abandon(): void {
    this.#hold?.lease.abandon();
  }

  /** Removes all that is stored about it; its lease goes last. Only of one that nobody was told of. */
  async remove(): Promise<void> {
    const { home, lease } = this.#held;
    lease.abandon();
    await home.metadataStore.remove(metadataKey(this.id));
    await home.metadataStore.remove(leaseKey(this.id));
  }

  get #held(): Hold {
    if (this.#hold === undefined) throw new Error(`Sandbox ${this.id} is not persistent`);
    return this.#hold;
  }
}

/** The setting that keeps this server from having persistent sandboxes. */
export function missingSetting({ metadataStore, checkpointStore }: HandleHome): string | undefined {
  if (metadataStore === undefined) return "metadataStore";
  return checkpointStore === undefined ? "checkpointStore" : undefined;
}

/** Throws `unsupported` where something that a persistent sandbox needs is turned off, naming the setting. */
export function assertCanPersist(home: HandleHome, asked = "create a persistent sandbox"): Home {
  const { metadataStore, leases } = home;
  const setting = missingSetting(home);
  if (setting === undefined && metadataStore !== undefined && leases !== undefined) return { metadataStore, leases };
  throw new SandboxError("unsupported", `Cannot ${asked}: this server keeps no persistent sandboxes`, {
    suggestion: `Its setting ${setting} is none: leave it out, or name a store.`,
    details: { setting },
  });
}

function objectOf({ metadataStore }: Home, id: SandboxId) {
  return { store: metadataStore, key: metadataKey(id), schema: SandboxMetadata };
}

function signalOf({ signal }: { signal?: AbortSignal | undefined }): { signal?: AbortSignal } {
  return signal === undefined ? {} : { signal };
}

function gone(id: SandboxId): SandboxError {
  return new SandboxError("not_found", `Cannot find sandbox ${id}`, {
    suggestion: "It never was, or it has been killed.",
    details: { sandboxId: id },
  });
}
