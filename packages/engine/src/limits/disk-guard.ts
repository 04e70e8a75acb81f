import { deadlineAfter, firstToAbort, SandboxError, type SandboxId } from "@atoll/protocol";
import type { GuestChannel } from "../guest/channel.ts";
import { warn } from "../support/warn.ts";
import { nextDiskDelay } from "./disk-pace.ts";
import { measureTree } from "./disk-usage.ts";

/** Growth is allowed again when usage is below this share of the quota. */
const easedShare = 0.95;
/** A sandbox that still grows after its writes were stopped is ended at this size. */
export const overrunBytes = (allowedBytes: number): number => allowedBytes * 1.25 + 64 * 1024 * 1024;
/**
 * A single measurement may fail because the disk is busy or has errors. After this many failures in a row the usage
 * counts as unknown.
 */
const mostFailures = 3;
/**
 * If the sandbox used less CPU time than this since the last measurement, it cannot have written anything worth
 * measuring.
 */
const idleCpuMs = 2;
/** gVisor itself uses this share of a core while nothing runs inside. */
const idleCpuShare = 0.0005;
/** Every sandbox is measured this often, because the host may allocate blocks long after the write. */
const longestRestMs = 30_000;
const guestAnswerMs = 5_000;

/** `full`: writes inside fail. `blind`: they fail because the usage is unknown. `overrun`: the sandbox still grew. */
export type DiskState = "open" | "full" | "blind" | "overrun";

export interface DiskGuardOptions {
  sandboxId: SandboxId;
  /** The size of the layers below, which do not change. */
  layerBytes: number;
  /** The directories that the sandbox's writes go to. */
  upperDirs: string[];
  channel: Pick<GuestChannel, "capFileSize">;
  measureTree?: typeof measureTree;
}

/**
 * Keeps the files of one sandbox within their quota: measures them, stops writes at the quota and allows them when
 * there is space again.
 */
export class DiskGuard {
  #options: DiskGuardOptions;
  /**
   * The state that was sent to the guest. The guest keeps it through the death of servers, pauses and forks, so at
   * first, and after a request without an answer, the state in force is unknown.
   */
  #state: "unknown" | "open" | "full" | "blind" = "unknown";
  /** The number of failures in a row. */
  #failures = 0;
  #usedBytes = 0;
  #measuredAtMs = 0;
  /**
   * The last complete measurement after which the guest had the right state, and the CPU time that had been used before
   * it.
   */
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

  /** Returns how long to wait before the next measurement. */
  nextDelayMs(allowedBytes: number): number {
    return nextDiskDelay({
      usedBytes: this.#usedBytes,
      allowedBytes,
      growthBytesPerMs: this.#growthPerMs,
      lastDurationMs: this.#durationMs,
    });
  }

  /**
   * Says whether a sandbox that has used this much CPU time can have written only little since the last measurement.
   */
  isAtRest(cpuMs: number | undefined): boolean {
    if (cpuMs === undefined || this.#cpuMsAtLook === undefined) return false;
    const restedMs = performance.now() - this.#lookedAtMs;
    if (cpuMs - this.#cpuMsAtLook >= idleCpuMs + restedMs * idleCpuShare || restedMs >= longestRestMs) return false;
    this.#growthPerMs = 0;
    return true;
  }

  async measure(allowedBytes: number, signal: AbortSignal): Promise<void> {
    const { upperDirs, layerBytes, sandboxId, measureTree: measureOne = measureTree } = this.#options;
    const startedMs = performance.now();
    const options = { signal, enoughBytes: overrunBytes(allowedBytes) };
    const sizes = await Promise.all(upperDirs.map((dir) => measureOne(dir, options))).catch((cause: unknown) => {
      signal.throwIfAborted();
      // A measurement that fails late must not be repeated all the time either.
      this.#durationMs = performance.now() - startedMs;
      throw new SandboxError(
        "internal",
        `Cannot measure the files of sandbox ${sandboxId}: the host cannot read them`,
        {
          cause,
          suggestion: "Check the host's disks and its kernel log.",
        },
      );
    });
    const nowMs = performance.now();
    const usedBytes = sizes.reduce((sum, size) => sum + size, layerBytes);
    const grownBytes = this.#measuredAtMs === 0 ? 0 : Math.max(0, usedBytes - this.#usedBytes);
    this.#growthPerMs = grownBytes / Math.max(1, nowMs - this.#measuredAtMs);
    this.#usedBytes = usedBytes;
    this.#measuredAtMs = nowMs;
    this.#durationMs = nowMs - startedMs;
  }

  /**
   * Measures the files, and makes writes inside fail or succeed accordingly. `cpuMs` is the CPU time that the sandbox
   * had used before.
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

  /** Rejects with the error as long as it may go away by itself. */
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
