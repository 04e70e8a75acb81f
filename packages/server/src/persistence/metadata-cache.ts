import { SandboxError, type SandboxId } from "@atoll/protocol";
import type { SandboxMetadata } from "./sandbox-metadata.ts";

export interface MetadataCacheOptions {
  /** Undefined: no sandbox of this id is stored. */
  read: (id: SandboxId) => Promise<SandboxMetadata | undefined>;
  nowMs?: () => number;
}

interface Sight {
  metadata: SandboxMetadata | undefined;
  seenAtMs: number;
}

/** Long enough that the many requests of one client cost one read, short enough that nobody notices. */
const freshMs = 1_000;
const mostRemembered = 1_000;
/** Whoever guesses ids makes the store work; beyond this many at once they are turned away. */
const mostReads = 64;

/**
 * What was last seen of sandboxes that other servers have, or nobody. Each look costs one read of the store at most,
 * also of what is not there.
 */
export class MetadataCache {
  readonly #options: MetadataCacheOptions;
  readonly #sights = new Map<SandboxId, Sight>();
  readonly #reads = new Map<SandboxId, Promise<SandboxMetadata | undefined>>();

  constructor(options: MetadataCacheOptions) {
    this.#options = options;
  }

  /** Not older than a moment. */
  async look(id: SandboxId): Promise<SandboxMetadata | undefined> {
    const sight = this.#sights.get(id);
    if (sight !== undefined && this.#nowMs - sight.seenAtMs < freshMs) return sight.metadata;
    return this.#reads.get(id) ?? this.#read(id);
  }

  /** As last seen, however long ago. */
  recall(id: SandboxId): SandboxMetadata | undefined {
    return this.#sights.get(id)?.metadata;
  }

  /** What was seen is no longer so. */
  forget(id: SandboxId): void {
    this.#sights.delete(id);
  }

  get #nowMs(): number {
    return (this.#options.nowMs ?? performance.now.bind(performance))();
  }

  #read(id: SandboxId): Promise<SandboxMetadata | undefined> {
    if (this.#reads.size >= mostReads) {
      throw new SandboxError("unavailable", `Cannot look for sandbox ${id}: too many are looked for at once`, {
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

  #remember(id: SandboxId, sight: Sight): void {
    this.#sights.delete(id);
    this.#sights.set(id, sight);
    const [oldest] = this.#sights.keys();
    if (this.#sights.size > mostRemembered && oldest !== undefined) this.#sights.delete(oldest);
  }
}
