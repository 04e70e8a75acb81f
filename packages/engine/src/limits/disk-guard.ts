import { deadlineAfter } from "@atoll/protocol";
import type { GuestChannel } from "../guest/channel.ts";
import { nextDiskDelay } from "./disk-pace.ts";
import { measureTree } from "./disk-usage.ts";

/** Growth is allowed again when usage has come down to this share of the quota. */
const easedShare = 0.95;
/** A sandbox that grows on although its writes are stopped is ended at this much over its quota. */
const overrunShare = 1.25;
const overrunBytes = 64 * 1024 * 1024;
const guestAnswerMs = 5_000;

/** `full`: writes inside fail. `overrun`: it grew on all the same. */
export type DiskState = "open" | "full" | "overrun";

export interface DiskGuardOptions {
  /** Of the layers below, which do not change. */
  frozenBytes: number;
  /** The directories that the sandbox's writes go to. */
  upperDirs: string[];
  channel: Pick<GuestChannel, "capFileSize">;
  measureTree?: typeof measureTree;
}

/** Keeps the files of one sandbox within their quota: measures them, stops writes at the quota and allows them when there is room again. */
export class DiskGuard {
  #options: DiskGuardOptions;
  /**
   * What the guest was told. It keeps that through the death of servers, pauses and forks, so at first, and after an answer that did not come, nobody here
   * knows what is in force.
   */
  #state: "unknown" | "open" | "full" = "unknown";
  #usedBytes = 0;
  #measuredAtMs = 0;
  #durationMs = 0;
  #growthPerMs = 0;

  constructor(options: DiskGuardOptions) {
    this.#options = options;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** How long to wait before the next look. */
  nextDelayMs(allowedBytes: number): number {
    return nextDiskDelay({
      usedBytes: this.#usedBytes,
      allowedBytes,
      growthBytesPerMs: this.#growthPerMs,
      lastDurationMs: this.#durationMs,
    });
  }

  /** To be called when nothing can have grown. */
  rest(): void {
    this.#growthPerMs = 0;
  }

  async measure(signal: AbortSignal): Promise<void> {
    const { upperDirs, frozenBytes, measureTree: measureOne = measureTree } = this.#options;
    const startedMs = performance.now();
    const sizes = await Promise.all(upperDirs.map((dir) => measureOne(dir, { signal })));
    const nowMs = performance.now();
    const usedBytes = sizes.reduce((sum, size) => sum + size, frozenBytes);
    const grownBytes = this.#measuredAtMs === 0 ? 0 : Math.max(0, usedBytes - this.#usedBytes);
    this.#growthPerMs = grownBytes / Math.max(1, nowMs - this.#measuredAtMs);
    this.#usedBytes = usedBytes;
    this.#measuredAtMs = nowMs;
    this.#durationMs = nowMs - startedMs;
  }

  /** Measures, and sees to it that writes inside fail or succeed as they should. */
  async look(allowedBytes: number, signal: AbortSignal): Promise<DiskState> {
    await this.measure(signal);
    if (this.#usedBytes > allowedBytes * overrunShare + overrunBytes) return "overrun";
    const isFull =
      this.#state === "full" ? this.#usedBytes > allowedBytes * easedShare : this.#usedBytes >= allowedBytes;
    await this.#tell(isFull ? "full" : "open", signal);
    return isFull ? "full" : "open";
  }

  async #tell(state: "open" | "full", signal: AbortSignal): Promise<void> {
    if (this.#state === state) return;
    this.#state = "unknown";
    const inTime = AbortSignal.any([signal, deadlineAfter(guestAnswerMs)]);
    await this.#options.channel.capFileSize(state === "full" ? 0 : undefined, inTime);
    this.#state = state;
  }
}
