import { deadlineAfter, type SandboxEventMessage, type SandboxLimits, type SandboxUsage } from "@atoll/protocol";
import type { GuestChannel } from "../guest/channel.ts";
import type { Cgroup, CgroupUsage } from "./cgroup.ts";
import { DiskGuard, type DiskGuardOptions, type DiskState } from "./disk-guard.ts";
import { LimitEvents } from "./limit-events.ts";

/** Less CPU time than this since the last look: nothing worth measuring can have been written. */
const idleCpuMs = 2;
const guestAnswerMs = 5_000;

const stoppedWrites = {
  full: "writes to files fail until enough is removed",
  blind: "writes to files fail until the host can measure them again",
};

export interface UsageMonitorOptions extends DiskGuardOptions {
  limits: SandboxLimits;
  cgroup: Pick<Cgroup, "usage" | "oomKills">;
  channel: Pick<GuestChannel, "capFileSize" | "countProcesses">;
  tell: (event: SandboxEventMessage) => void;
  /** Called once, when stopping its writes did not stop the sandbox from growing. */
  onOverrun: (usedBytes: number) => void;
}

/** Looks at one sandbox from time to time, as often as its growth asks for: measures, tells, and stops the disk from growing. */
export class UsageMonitor {
  #options: UsageMonitorOptions;
  #disk: DiskGuard;
  #diskState: DiskState = "open";
  #events: LimitEvents;
  #timer: NodeJS.Timeout | undefined;
  #stopped = new AbortController();
  #cpuMsAtLastLook = -1;
  #oomKills = 0;

  constructor(options: UsageMonitorOptions) {
    this.#options = options;
    this.#disk = new DiskGuard(options);
    this.#events = new LimitEvents(options.sandboxId, options.tell);
    this.#schedule();
  }

  stop(): void {
    this.#stopped.abort();
    clearTimeout(this.#timer);
  }

  /** A reading of now. */
  async read(): Promise<SandboxUsage> {
    const { cgroup, channel } = this.#options;
    const signal = AbortSignal.any([this.#stopped.signal, deadlineAfter(guestAnswerMs)]);
    const [{ memoryBytes, memoryPeakBytes, cpuMs }, processes] = await Promise.all([
      cgroup.usage(),
      channel.countProcesses(signal),
      this.#disk.measure(this.#stopped.signal),
    ]);
    return { readAtMs: Date.now(), memoryBytes, memoryPeakBytes, cpuMs, processes, diskBytes: this.#disk.usedBytes };
  }

  #schedule(): void {
    this.#timer = setTimeout(() => {
      this.#look()
        // A sandbox that ends while it is looked at is no news here.
        .catch(() => undefined)
        .finally(() => {
          if (!this.#stopped.signal.aborted) this.#schedule();
        });
    }, this.#disk.nextDelayMs(this.#options.limits.diskBytes));
    this.#timer.unref();
  }

  async #look(): Promise<void> {
    const { cgroup, limits, channel } = this.#options;
    const usage = await cgroup.usage();
    const isIdle = usage.cpuMs - this.#cpuMsAtLastLook < idleCpuMs;
    this.#cpuMsAtLastLook = usage.cpuMs;
    await this.#lookForOom(usage);
    if (isIdle) {
      this.#disk.rest();
      return;
    }
    this.#events.compare("memory", { used: usage.memoryBytes, allowed: limits.memoryBytes });
    await this.#guardDisk();
    const signal = AbortSignal.any([this.#stopped.signal, deadlineAfter(guestAnswerMs)]);
    this.#events.compare("processes", { used: await channel.countProcesses(signal), allowed: limits.processes });
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
      const reading = { used: memoryPeakBytes, allowed: limits.memoryBytes };
      this.#events.hit("memory", reading, "the kernel killed a process of the sandbox");
    }
    return this.#oomKills;
  }

  async #guardDisk(): Promise<void> {
    const { limits, onOverrun } = this.#options;
    const before = this.#diskState;
    const state = await this.#disk.look(limits.diskBytes, this.#stopped.signal);
    this.#diskState = state;
    const reading = { used: this.#disk.usedBytes, allowed: limits.diskBytes };
    switch (state) {
      case "overrun":
        this.stop();
        onOverrun(reading.used);
        return;
      case "full":
      case "blind":
        if (before !== state) this.#events.hit("disk", reading, stoppedWrites[state]);
        return;
      case "open":
        if (before === "open") this.#events.compare("disk", reading);
        else this.#events.ease("disk", reading);
    }
  }
}
