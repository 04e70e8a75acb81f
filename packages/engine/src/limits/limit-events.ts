import type { LimitName, SandboxEventMessage, SandboxId } from "@atoll/protocol";

/** From here on a limit counts as near, and back below as eased. */
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

/** Tells of one sandbox's limits, of each once when it comes near, once when it is hit and once when it is far again. */
export class LimitEvents {
  #sandboxId: SandboxId;
  #tell: (event: SandboxEventMessage) => void;
  #told = new Set<LimitName>();

  constructor(sandboxId: SandboxId, tell: (event: SandboxEventMessage) => void) {
    this.#sandboxId = sandboxId;
    this.#tell = tell;
  }

  /** Near or far: what was told as hit is near. */
  compare(limit: LimitName, reading: LimitReading): void {
    const isNear = reading.used >= reading.allowed * nearShare;
    if (!isNear) this.ease(limit, reading);
    else if (!this.#told.has(limit)) {
      this.#told.add(limit);
      this.#send({ type: "limit.near", limit, ...reading });
    }
  }

  /** Each time that it is called. */
  hit(limit: LimitName, reading: LimitReading, consequence: string): void {
    this.#told.add(limit);
    this.#send({ type: "limit.hit", limit, ...reading, consequence });
  }

  /** When something was told before. */
  ease(limit: LimitName, reading: LimitReading): void {
    if (this.#told.delete(limit)) this.#send({ type: "limit.eased", limit, ...reading });
  }

  #send(event: LimitEvent): void {
    this.#tell({ ...event, sandboxId: this.#sandboxId, atMs: Date.now() });
  }
}
