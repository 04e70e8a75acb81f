import { SandboxError, type SandboxId } from "@atoll/protocol";
import type { SandboxMetadata } from "./sandbox-metadata.ts";

export interface MetadataCacheOptions {
  /** Returns undefined if no sandbox with this id is stored. */
  read: (id: SandboxId) => Promise<SandboxMetadata | undefined>;
  nowMs?: () => number;
}

interface CachedMetadata {
  metadata: SandboxMetadata | undefined;
  seenAtMs: number;
}

/** The time is so long that the many requests of one client cost one read, and so short that no client notices. */
const freshMs = 1_000;
const mostRemembered = 1_000;
/** The most reads at once, because a client that guesses ids makes the store work; more are refused. */
const mostReads = 64;

/**
 * The last known metadata of sandboxes that this server does not have. A lookup costs at most one read of the store,
 * also for a sandbox that does not exist.
 */
export class MetadataCache {
  readonly #options: MetadataCacheOptions;
  readonly #cached = new Map<SandboxId, CachedMetadata>();
  readonly #reads = new Map<SandboxId, Promise<SandboxMetadata | undefined>>();

  constructor(options: MetadataCacheOptions) {
    this.#options = options;
  }

  /** Returns the metadata, at most `freshMs` old. */
  async look(id: SandboxId): Promise<SandboxMetadata | undefined> {
    const cached = this.#cached.get(id);
    if (cached !== undefined && this.#nowMs - cached.seenAtMs < freshMs) return cached.metadata;
    return this.#reads.get(id) ?? this.#read(id);
  }

  /** Returns the cached metadata, however old. */
  recall(id: SandboxId): SandboxMetadata | undefined {
    return this.#cached.get(id)?.metadata;
  }

  /** Removes an entry that is no longer valid. */
  forget(id: SandboxId): void {
    this.#cached.delete(id);
  }

  get #nowMs(): number {
    return (this.#options.nowMs ?? performance.now.bind(performance))();
  }

  #read(id: SandboxId): Promise<SandboxMetadata | undefined> {
    if (this.#reads.size >= mostReads) {
      throw new SandboxError("unavailable", `Cannot find sandbox ${id}: too many lookups are in progress`, {
        suggestion: "Try again in a moment.",
      });
    }
    const seenAtMs = this.#nowMs;
    const reading = this.#options
      .read(id)
      .then((metadata) => {
        this.#remember(id, { metadata, seenAtMs });
        return metadata;
      })
      .finally(() => this.#reads.delete(id));
    this.#reads.set(id, reading);
    return reading;
  }

  #remember(id: SandboxId, cached: CachedMetadata): void {
    this.#cached.delete(id);
    this.#cached.set(id, cached);
    const [oldest] = this.#cached.keys();
    if (this.#cached.size > mostRemembered && oldest !== undefined) this.#cached.delete(oldest);
  }
}
