import {
  deadlineAfter,
  type LimitName,
  type SandboxEventMessage,
  type SandboxId,
  type SandboxLimits,
  type SandboxUsage,
} from "@atoll/protocol";
import type { GuestChannel } from "../guest/channel.ts";
import type { Cgroup, CgroupUsage } from "./cgroup.ts";
import { nextDiskDelay } from "./disk-pace.ts";
import { measureTree } from "./disk-usage.ts";

/** From here on a limit counts as near, and back below as eased. */
const nearShare = 0.9;
/** Growth is allowed again when usage has come down to this share of the quota. */
const easedShare = 0.95;
/** A sandbox that grows on although its writes are stopped is ended at this much over its quota. */
const overrunShare = 1.25;
const overrunBytes = 64 * 1024 * 1024;
/** Less CPU time than this since the last look: nothing worth measuring can have been written. */
const idleCpuMs = 2;
const guestAnswerMs = 5_000;

export interface UsageMonitorOptions {
  sandboxId: SandboxId;
  limits: SandboxLimits;
  cgroup: Cgroup;
  channel: GuestChannel;
  /** Of the layers below, which do not change. */
  frozenBytes: number;
  /** The directories that the sandbox's writes go to. */
  upperDirs: string[];
  tell: (event: SandboxEventMessage) => void;
  /** Called once, when stopping its writes did not stop the sandbox from growing. */
  onOverrun: (usedBytes: number) => void;
}

/** Looks at one sandbox from time to time, as often as its growth asks for: measures, tells, and stops the disk from growing. */
export class UsageMonitor {
  #options: UsageMonitorOptions;
  #timer: NodeJS.Timeout | undefined;
  #stopped = new AbortController();
  #told = new Set<LimitName>();
  #isCapped = false;
  #disk = { usedBytes: 0, measuredAtMs: 0, durationMs: 0, growthPerMs: 0 };
  #cpuMsAtLastLook = -1;
  #oomKills = 0;

  constructor(options: UsageMonitorOptions) {
    this.#options = options;
    this.#schedule();
  }

  stop(): void {
    this.#stopped.abort();
    clearTimeout(this.#timer);
  }

  setLimits(limits: SandboxLimits): void {
    this.#options.limits = limits;
  }

  /** A reading of now. */
  async read(): Promise<SandboxUsage> {
    const { cgroup, channel } = this.#options;
    const signal = AbortSignal.any([this.#stopped.signal, deadlineAfter(guestAnswerMs)]);
    const [{ memoryBytes, memoryPeakBytes, cpuMs }, processes] = await Promise.all([
      cgroup.usage(),
      channel.countProcesses(signal),
      this.#measureDisk(),
    ]);
    return { readAtMs: Date.now(), memoryBytes, memoryPeakBytes, cpuMs, processes, diskBytes: this.#disk.usedBytes };
  }

  #schedule(): void {
    const { limits } = this.#options;
    const delayMs = nextDiskDelay({
      usedBytes: this.#disk.usedBytes,
      allowedBytes: limits.diskBytes,
      growthBytesPerMs: this.#disk.growthPerMs,
      lastDurationMs: this.#disk.durationMs,
    });
    this.#timer = setTimeout(() => {
      this.#look()
        // A sandbox that ends while it is looked at is no news here.
        .catch(() => undefined)
        .finally(() => {
          if (!this.#stopped.signal.aborted) this.#schedule();
        });
    }, delayMs);
    this.#timer.unref();
  }

  async #look(): Promise<void> {
    const { cgroup, limits, channel } = this.#options;
    const usage = await cgroup.usage();
    const isIdle = usage.cpuMs - this.#cpuMsAtLastLook < idleCpuMs;
    this.#cpuMsAtLastLook = usage.cpuMs;
    await this.#lookForOom(usage);
    if (isIdle) {
      this.#disk.growthPerMs = 0;
      return;
    }
    this.#compare("memory", usage.memoryBytes, limits.memoryBytes);
    await this.#measureDisk();
    await this.#guardDisk();
    const signal = AbortSignal.any([this.#stopped.signal, deadlineAfter(guestAnswerMs)]);
    this.#compare("processes", await channel.countProcesses(signal), limits.processes);
  }

  /** Processes of the sandbox that the kernel has killed for memory, as of the last look. */
  get oomKills(): number {
    return this.#oomKills;
  }

  /** Looks now, and tells what it finds. */
  async lookForOom(): Promise<number> {
    return this.#lookForOom(await this.#options.cgroup.usage());
  }

  async #lookForOom({ memoryPeakBytes }: CgroupUsage): Promise<number> {
    const { cgroup, limits } = this.#options;
    const kills = await cgroup.oomKills();
    if (kills > this.#oomKills) {
      this.#oomKills = kills;
      this.#hit("memory", memoryPeakBytes, limits.memoryBytes, "the kernel killed a process of the sandbox");
    }
    return this.#oomKills;
  }

  async #measureDisk(): Promise<void> {
    const startedMs = performance.now();
    const sizes = await Promise.all(
      this.#options.upperDirs.map((dir) => measureTree(dir, { signal: this.#stopped.signal })),
    );
    const nowMs = performance.now();
    const usedBytes = sizes.reduce((sum, size) => sum + size, this.#options.frozenBytes);
    const { usedBytes: before, measuredAtMs } = this.#disk;
    const growthPerMs = measuredAtMs === 0 ? 0 : Math.max(0, usedBytes - before) / Math.max(1, nowMs - measuredAtMs);
    this.#disk = { usedBytes, measuredAtMs: nowMs, durationMs: nowMs - startedMs, growthPerMs };
  }

  async #guardDisk(): Promise<void> {
    const { limits, channel, onOverrun } = this.#options;
    const { usedBytes } = this.#disk;
    const signal = AbortSignal.any([this.#stopped.signal, deadlineAfter(guestAnswerMs)]);
    if (usedBytes > limits.diskBytes * overrunShare + overrunBytes) {
      this.stop();
      onOverrun(usedBytes);
      return;
    }
    if (!this.#isCapped && usedBytes >= limits.diskBytes) {
      await channel.capFileSize(0, signal);
      this.#isCapped = true;
      this.#hit("disk", usedBytes, limits.diskBytes, "writes to files fail until enough is removed");
    } else if (this.#isCapped && usedBytes <= limits.diskBytes * easedShare) {
      await channel.capFileSize(undefined, signal);
      this.#isCapped = false;
      this.#told.delete("disk");
      this.#tell({ type: "limit.eased", limit: "disk", used: usedBytes, allowed: limits.diskBytes });
    } else if (!this.#isCapped) {
      this.#compare("disk", usedBytes, limits.diskBytes);
    }
  }

  /** Tells once when a limit comes near, and once when it is far again. */
  #compare(limit: LimitName, used: number, allowed: number): void {
    const isNear = used >= allowed * nearShare;
    if (isNear === this.#told.has(limit)) return;
    if (isNear) this.#told.add(limit);
    else this.#told.delete(limit);
    this.#tell({ type: isNear ? "limit.near" : "limit.eased", limit, used, allowed });
  }

  #hit(limit: LimitName, used: number, allowed: number, consequence: string): void {
    this.#told.add(limit);
    this.#tell({ type: "limit.hit", limit, used, allowed, consequence });
  }

  #tell(
    event: SandboxEventMessage extends infer E ? (E extends unknown ? Omit<E, "sandboxId" | "atMs"> : never) : never,
  ): void {
    this.#options.tell({ ...event, sandboxId: this.#options.sandboxId, atMs: Date.now() });
  }
}
