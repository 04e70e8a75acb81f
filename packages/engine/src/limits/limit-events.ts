import type { LimitName, SandboxEventMessage, SandboxId } from "@atoll/protocol";

/** At this share of it a limit counts as near, and below it as eased. */
const nearShare = 0.9;

type LimitEvent = SandboxEventMessage extends infer E
  ? E extends { type: `limit.${string}` }
    ? Omit<E, "sandboxId" | "atMs">
    : never
  : never;

export interface LimitReading {
  used: number;
  allowed: number;
}

/**
 * Emits events about one sandbox's limits: for each limit one when it comes near, one when it is hit and one when it is
 * far again.
 */
export class LimitEvents {
  #sandboxId: SandboxId;
  #emit: (event: SandboxEventMessage) => void;
  #emitted = new Map<LimitName, "near" | "hit">();

  constructor(sandboxId: SandboxId, emit: (event: SandboxEventMessage) => void) {
    this.#sandboxId = sandboxId;
    this.#emit = emit;
  }

  /** Whether no limit is near or hit, by the emitted events. */
  get areAllFar(): boolean {
    return this.#emitted.size === 0;
  }

  /**
   * Compares a reading with its limit: near or far, or hit with this consequence. A limit that was hit stays so until
   * it is far.
   */
  compare(limit: LimitName, reading: LimitReading, consequence?: string): void {
    if (consequence !== undefined) {
      if (this.#emitted.get(limit) !== "hit") this.hit(limit, reading, consequence);
    } else if (reading.used < reading.allowed * nearShare) this.ease(limit, reading);
    else if (!this.#emitted.has(limit)) {
      this.#emitted.set(limit, "near");
      this.#send({ type: "limit.near", limit, ...reading });
    }
  }

  /** Emits an event at each call. */
  hit(limit: LimitName, reading: LimitReading, consequence: string): void {
    this.#emitted.set(limit, "hit");
    this.#send({ type: "limit.hit", limit, ...reading, consequence });
  }

  /** Emits an event if an earlier one was emitted. */
  ease(limit: LimitName, reading: LimitReading): void {
    if (this.#emitted.delete(limit)) this.#send({ type: "limit.eased", limit, ...reading });
  }

  #send(event: LimitEvent): void {
    this.#emit({ ...event, sandboxId: this.#sandboxId, atMs: Date.now() });
  }
}
