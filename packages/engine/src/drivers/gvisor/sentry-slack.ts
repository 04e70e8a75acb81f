import { closeSync, constants, openSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { hasErrno, parseProcessStat } from "@atoll/host";
import type { RunTally, TimerSlack } from "../../idle/timer-slack.ts";

/** The kernel gives this slack to every thread by default. */
const ordinarySlackNs = 50_000;
/** A thread that starts another one passes its slack on, so the list is read again until it has nothing new. */
const mostRounds = 10;
/** Each process takes some ten microseconds to read, in which requests wait. */
const mostProcesses = 256;

/**
 * The timer slack of gVisor's own kernel, the sentry. Its systrap platform checks its latencies every 400 µs for as
 * long as the sandbox lives, which costs 2 % of a core; slack makes those sleeps longer. Timers of processes inside are
 * timers of the sentry, and become late as well.
 */
export class SentrySlack implements TimerSlack {
  readonly #pid: number;
  readonly #startTicks: number | undefined;
  readonly #cgroupDir: string;
  readonly #fifo: string;
  #fifoFd: number | undefined;

  /** `cgroupDir` has all processes of the container, and no others. `fifo` is the `slackFifo` of its launch. */
  constructor({ pid, cgroupDir, fifo }: { pid: number; cgroupDir: string; fifo: string }) {
    this.#pid = pid;
    this.#cgroupDir = cgroupDir;
    this.#fifo = fifo;
    this.#startTicks = this.#readStartTicks();
  }

  allow(ms: number): void {
    // The process id may belong to another process by now.
    if (this.#startTicks === undefined || this.#readStartTicks() !== this.#startTicks) return;
    this.#fifoFd ??= openFifo(this.#fifo);
    this.#set(ms * 1_000_000);
  }

  remove(): void {
    this.#set(ordinarySlackNs);
  }

  /**
   * Each process inside is run by host processes of its own, the stubs. They run when it does, and at no other time.
   */
  readRuns(): RunTally | undefined {
    const pids = undefinedIfGone(() => readFileSync(`${this.#cgroupDir}/cgroup.procs`, "latin1"))?.split("\n");
    if (pids === undefined || pids.length > mostProcesses) return undefined;
    const tally = { runs: 0, ms: 0, waitMs: 0 };
    for (const pid of pids) {
      if (pid === "" || pid === "0" || pid === String(this.#pid)) continue;
      const [ranNs, waitedNs, runs] =
        undefinedIfGone(() => readFileSync(`/proc/${pid}/schedstat`, "latin1"))?.split(" ") ?? [];
      tally.runs += Number(runs ?? 0);
      tally.ms += Number(ranNs ?? 0) / 1_000_000;
      tally.waitMs += Number(waitedNs ?? 0) / 1_000_000;
    }
    return tally;
  }

  [Symbol.dispose](): void {
    if (this.#fifoFd !== undefined) closeSync(this.#fifoFd);
    this.#fifoFd = undefined;
  }

  #set(ns: number): void {
    const done = new Set<string>();
    for (let round = 0; round < mostRounds; round += 1) {
      const threads = undefinedIfGone(() => readdirSync(`/proc/${this.#pid}/task`)) ?? [];
      const fresh = threads.filter((thread) => !done.has(thread));
      if (fresh.length === 0) return;
      for (const thread of fresh) {
        undefinedIfGone(() => writeFileSync(`/proc/${thread}/timerslack_ns`, String(ns)));
        done.add(thread);
      }
    }
  }

  #readStartTicks(): number | undefined {
    const line = undefinedIfGone(() => readFileSync(`/proc/${this.#pid}/stat`, "latin1"));
    return line === undefined ? undefined : parseProcessStat(line)?.startTicks;
  }
}

/** Returns undefined if the launcher is of an older build and has no such FIFO, or is gone. */
function openFifo(path: string): number | undefined {
  try {
    return openSync(path, constants.O_WRONLY | constants.O_NONBLOCK);
  } catch (error) {
    if (hasErrno(error, "ENOENT", "ENXIO")) return undefined;
    throw error;
  }
}

/** Returns undefined for a process, a thread or a group that has ended. */
function undefinedIfGone<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (hasErrno(error, "ENOENT", "ESRCH", "ENODEV")) return undefined;
    throw error;
  }
}
