import type { Cgroup, CgroupUsage } from "@atoll/host";
import {
  deadlineAfter,
  firstToAbort,
  LimitLevels,
  SandboxError,
  type SandboxEventMessage,
  type SandboxId,
  type SandboxLimits,
  type SandboxUsage,
} from "@atoll/protocol";
import type { GuestChannel } from "../guest/channel.ts";
import { CpuWindow } from "./cpu-window.ts";
import { DiskGuard, type DiskGuardOptions, type DiskState } from "./disk-guard.ts";

const guestAnswerMs = 5_000;
/** The time limit of a process count that the disk measurement waits for. */
const countMs = 1_000;
/** Counting may take a tenth of the guest's time at most. */
const mostShareOfTime = 0.1;

/** At this share of its memory a sandbox is about to lose a process to the kernel. */
const fullMemoryShare = 0.95;

const stoppedWrites = {
  full: "writes to files fail until enough is removed",
  blind: "writes to files fail until the host can measure them again",
};

const almostNoMemory = "the kernel kills a process of the sandbox when it needs more";
const waitsForCpu = "its processes have to wait for CPU time again and again";
const noMoreProcesses = "processes and threads fail to start until some of them end";

export interface UsageMonitorOptions extends DiskGuardOptions {
  limits: SandboxLimits;
  cgroup: Pick<Cgroup, "usage" | "cpuMs" | "oomKills">;
  channel: Pick<GuestChannel, "capFileSize"> & {
    countProcesses(signal: AbortSignal): Promise<{ processes: number; ofOneUser: number }>;
  };
  emit: (event: SandboxEventMessage) => void;
  /** Returns the share of each limit at which it counts as near. */
  softLimit?: () => number;
  /** Called once, when the sandbox still grows after its writes were stopped. */
  onOverrun: (usedBytes: number) => void;
}

/** What can be read of a sandbox without a question to its guest. */
export interface SandboxGlance {
  memoryBytes: number;
  cpuMs: number;
  /** Undefined until they were counted for the first time. */
  processes: number | undefined;
  diskBytes: number;
}

/**
 * Checks one sandbox from time to time, as often as its growth requires: measures it, emits events, and stops its disk
 * usage from growing.
 */
export class UsageMonitor {
  #options: UsageMonitorOptions;
  #disk: DiskGuard;
  #diskState: DiskState = "open";
  #levels: LimitLevels;
  #timer: NodeJS.Timeout | undefined;
  #stopped = new AbortController();
  #oomKills = 0;
  #countAgainAtMs = 0;
  #processes: number | undefined;
  #cpu = new CpuWindow();

  constructor(options: UsageMonitorOptions) {
    this.#options = options;
    this.#disk = new DiskGuard(options);
    const { sandboxId, softLimit, emit } = options;
    this.#levels = new LimitLevels((change) => emit({ ...change, sandboxId, atMs: Date.now() }), softLimit);
    this.#schedule();
  }

  stop(): void {
    this.#stopped.abort();
    clearTimeout(this.#timer);
  }

  get isStopped(): boolean {
    return this.#stopped.signal.aborted;
  }

  /** Returns a reading of now. */
  async read(): Promise<SandboxUsage> {
    const { cgroup, channel, limits } = this.#options;
    using signal = firstToAbort(this.#stopped.signal, deadlineAfter(guestAnswerMs));
    const [{ memoryBytes, memoryPeakBytes, cpuMs }, { processes }] = await Promise.all([
      cgroup.usage(),
      channel.countProcesses(signal),
      this.#disk.measure(limits.diskBytes, this.#stopped.signal),
    ]);
    const diskBytes = this.#disk.usedBytes;
    this.#processes = processes;
    return { readAtMs: Date.now(), memoryBytes, memoryPeakBytes, cpuMs: cpuMs ?? 0, processes, diskBytes };
  }

  /**
   * Returns a reading of now without a question to the guest, which would make an idle sandbox work: from its cgroup,
   * with the processes and the size of its files as of the last check. What is idle starts no process and writes no
   * file.
   */
  async peek(): Promise<SandboxGlance> {
    const { memoryBytes, cpuMs = 0 } = await this.#options.cgroup.usage();
    return { memoryBytes, cpuMs, processes: this.#processes, diskBytes: this.#disk.usedBytes };
  }

  #schedule(): void {
    this.#timer = setTimeout(() => {
      this.#look()
        // If a sandbox ends during a check, other parts report that.
        .catch(() => undefined)
        .finally(() => {
          if (!this.isStopped) this.#schedule();
        });
    }, this.#disk.nextDelayMs(this.#options.limits.diskBytes));
    this.#timer.unref();
  }

  async #look(): Promise<void> {
    // While nothing uses CPU time inside, no limit comes nearer. There may be hundreds of idle sandboxes.
    if (this.#levels.areAllFar && this.#disk.isAtRest(await this.#readCpu())) return;
    if (this.#disk.isAtRest(await this.#lookAtCgroup())) return;
    await this.#lookAtProcesses();
    // Counting takes CPU time inside, which is no reason to check again.
    await this.#guardDisk(await this.#lookAtCgroup());
  }

  /** Resolves to the CPU time that was used, if that is known. */
  async #lookAtCgroup(): Promise<number | undefined> {
    const { cgroup, limits } = this.#options;
    try {
      const usage = await cgroup.usage();
      await this.#lookForOom(usage);
      const memory = { used: usage.memoryBytes, allowed: limits.memoryBytes };
      this.#levels.compare(
        "memory",
        memory,
        memory.used >= memory.allowed * fullMemoryShare ? almostNoMemory : undefined,
      );
      this.#lookAtCpu(usage);
      return usage.cpuMs;
    } catch {
      // The disk is guarded without it.
      return undefined;
    }
  }

  async #readCpu(): Promise<number | undefined> {
    return this.#options.cgroup.cpuMs().catch(() => undefined);
  }

  #lookAtCpu(usage: CgroupUsage): void {
    const stretch = this.#cpu.look(usage);
    if (stretch === undefined) return;
    const reading = { used: Math.round(stretch.cpus * 100) / 100, allowed: this.#options.limits.cpus };
    this.#levels.compare("cpu", reading, stretch.isHit ? waitsForCpu : undefined);
  }

  async #lookAtProcesses(): Promise<void> {
    const { limits, channel } = this.#options;
    const startedMs = performance.now();
    if (startedMs < this.#countAgainAtMs) return;
    try {
      using signal = firstToAbort(this.#stopped.signal, deadlineAfter(countMs));
      // The limit applies to each user.
      const { processes, ofOneUser: used } = await channel.countProcesses(signal);
      this.#processes = processes;
      const isHit = used >= limits.processes;
      this.#levels.compare("processes", { used, allowed: limits.processes }, isHit ? noMoreProcesses : undefined);
    } catch {
      // The channel reports a guest that is gone.
    }
    const nowMs = performance.now();
    this.#countAgainAtMs = nowMs + (nowMs - startedMs) / mostShareOfTime;
  }

  /** The number of processes of the sandbox that the kernel has killed for memory, as of the last check. */
  get oomKills(): number {
    return this.#oomKills;
  }

  /** Checks now, and emits what it finds. */
  async lookForOom(): Promise<number> {
    return this.#lookForOom(await this.#options.cgroup.usage());
  }

  async #lookForOom({ memoryPeakBytes }: CgroupUsage): Promise<number> {
    const { cgroup, limits } = this.#options;
    const kills = await cgroup.oomKills();
    if (kills > this.#oomKills) {
      this.#oomKills = kills;
      const reading = { used: memoryPeakBytes, allowed: limits.memoryBytes };
      this.#levels.hit("memory", reading, "the kernel killed a process of the sandbox");
    }
    return this.#oomKills;
  }

  async #guardDisk(cpuMs: number | undefined): Promise<void> {
    const { limits, onOverrun } = this.#options;
    const before = this.#diskState;
    const state = await this.#disk.look(limits.diskBytes, cpuMs, this.#stopped.signal);
    this.#diskState = state;
    const reading = { used: this.#disk.usedBytes, allowed: limits.diskBytes };
    switch (state) {
      case "overrun":
        this.#levels.hit("disk", reading, "the sandbox is ended");
        this.stop();
        onOverrun(reading.used);
        return;
      case "full":
      case "blind":
        if (before !== state) this.#levels.hit("disk", reading, stoppedWrites[state]);
        return;
      case "open":
        if (before === "open") this.#levels.compare("disk", reading);
        else this.#levels.ease("disk", reading);
    }
  }
}

/** Returns a reading for a caller that may ask at any moment; if there is none, the error says why. */
export async function readOrExplain(
  monitor: Pick<UsageMonitor, "read" | "isStopped">,
  id: SandboxId,
): Promise<SandboxUsage> {
  try {
    return await monitor.read();
  } catch (cause) {
    const options = { details: { sandboxId: id }, cause };
    if (monitor.isStopped) {
      const what = `Cannot read usage of sandbox ${id}: it is being paused, or ends`;
      throw new SandboxError("invalid_state", what, { ...options, suggestion: "Check its state." });
    }
    if (!(cause instanceof DOMException && cause.name === "TimeoutError")) throw cause;
    const what = `Cannot read usage of sandbox ${id}: its guest does not answer`;
    throw new SandboxError("guest_silent", what, { ...options, suggestion: "Try again when it has more CPU time." });
  }
}
