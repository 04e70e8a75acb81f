import { deadlineAfter, firstToAbort, SandboxError, type SandboxId } from "@atoll/protocol";
import type { GuestChannel } from "../guest/channel.ts";
import { warn } from "../support/warn.ts";
import { nextDiskDelay } from "./disk-pace.ts";
import { measureTree } from "./disk-usage.ts";

/** Growth is allowed again when usage has come down to this share of the quota. */
const easedShare = 0.95;
/** A sandbox that grows on although its writes are stopped is ended at this much. */
export const overrunBytes = (allowedBytes: number): number => allowedBytes * 1.25 + 64 * 1024 * 1024;
/**
 * One look may meet a disk that is busy or full of errors. So many in a row mean that nobody knows any more how much is
 * written.
 */
const mostFailures = 3;
/** Less CPU time than this since it was measured: nothing worth measuring can have been written. */
const idleCpuMs = 2;
/** And gVisor itself takes this share of a core while nothing runs inside. */
const idleCpuShare = 0.0005;
/**
 * It is looked at this often whatever it does: the host may allocate what was written when the writer has long been
 * idle.
 */
const longestRestMs = 30_000;
const guestAnswerMs = 5_000;

/**
 * `full`: writes inside fail. `blind`: they fail because nobody can tell how much there is. `overrun`: it grew on all
 * the same.
 */
export type DiskState = "open" | "full" | "blind" | "overrun";

export interface DiskGuardOptions {
  sandboxId: SandboxId;
  /** Of the layers below, which do not change. */
  frozenBytes: number;
  /** The directories that the sandbox's writes go to. */
  upperDirs: string[];
  channel: Pick<GuestChannel, "capFileSize">;
  measureTree?: typeof measureTree;
}

/**
 * Keeps the files of one sandbox within their quota: measures them, stops writes at the quota and allows them when
 * there is room again.
 */
export class DiskGuard {
  #options: DiskGuardOptions;
  /**
   * What the guest was told. It keeps that through the death of servers, pauses and forks, so at first, and after an
   * answer that did not come, nobody here knows what is in force.
   */
  #state: "unknown" | "open" | "full" | "blind" = "unknown";
  /** In a row. */
  #failures = 0;
  #usedBytes = 0;
  #measuredAtMs = 0;
  /** The last look that found out and told all that it had to, and the CPU time that had been used before it. */
  #lookedAtMs = 0;
  #cpuMsAtLook: number | undefined;
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

  /** Whether a sandbox that has used this much CPU time can have written much since the last look. */
  isAtRest(cpuMs: number | undefined): boolean {
    if (cpuMs === undefined || this.#cpuMsAtLook === undefined) return false;
    const restedMs = performance.now() - this.#lookedAtMs;
    if (cpuMs - this.#cpuMsAtLook >= idleCpuMs + restedMs * idleCpuShare || restedMs >= longestRestMs) return false;
    this.#growthPerMs = 0;
    return true;
  }

  async measure(allowedBytes: number, signal: AbortSignal): Promise<void> {
    const { upperDirs, frozenBytes, sandboxId, measureTree: measureOne = measureTree } = this.#options;
    const startedMs = performance.now();
    const options = { signal, enoughBytes: overrunBytes(allowedBytes) };
    const sizes = await Promise.all(upperDirs.map((dir) => measureOne(dir, options))).catch((cause: unknown) => {
      signal.throwIfAborted();
      // What fails late may not be tried all the time either.
      this.#durationMs = performance.now() - startedMs;
      throw new SandboxError("internal", `Cannot measure the files of sandbox ${sandboxId}: the host cannot read all`, {
        cause,
        suggestion: "Look at the host's disks and its kernel log.",
      });
    });
    const nowMs = performance.now();
    const usedBytes = sizes.reduce((sum, size) => sum + size, frozenBytes);
    const grownBytes = this.#measuredAtMs === 0 ? 0 : Math.max(0, usedBytes - this.#usedBytes);
    this.#growthPerMs = grownBytes / Math.max(1, nowMs - this.#measuredAtMs);
    this.#usedBytes = usedBytes;
    this.#measuredAtMs = nowMs;
    this.#durationMs = nowMs - startedMs;
  }

  /**
   * Measures, and sees to it that writes inside fail or succeed as they should. `cpuMs`: what the sandbox had used
   * before.
   */
  async look(allowedBytes: number, cpuMs: number | undefined, signal: AbortSignal): Promise<DiskState> {
    this.#cpuMsAtLook = undefined;
    try {
      await this.measure(allowedBytes, signal);
    } catch (error) {
      signal.throwIfAborted();
      return this.#fail(error, signal);
    }
    this.#failures = 0;
    if (this.#usedBytes > overrunBytes(allowedBytes)) return "overrun";
    const isFull =
      this.#state === "full" ? this.#usedBytes > allowedBytes * easedShare : this.#usedBytes >= allowedBytes;
    await this.#sendState(isFull ? "full" : "open", signal);
    this.#cpuMsAtLook = cpuMs;
    this.#lookedAtMs = performance.now();
    return isFull ? "full" : "open";
  }

  /** Rejects with the error as long as it may pass by itself. */
  async #fail(error: unknown, signal: AbortSignal): Promise<"blind"> {
    this.#failures += 1;
    if (this.#failures < mostFailures) throw error;
    if (this.#failures === mostFailures) warn(error);
    await this.#sendState("blind", signal);
    return "blind";
  }

  async #sendState(state: "open" | "full" | "blind", signal: AbortSignal): Promise<void> {
    if (this.#state === state) return;
    this.#state = "unknown";
    using inTime = firstToAbort(signal, deadlineAfter(guestAnswerMs));
    await this.#options.channel.capFileSize(state === "open" ? undefined : 0, inTime);
    this.#state = state;
  }
}
