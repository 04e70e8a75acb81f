import {
  assertAccepts,
  SandboxError,
  SpawnRequest,
  type EndReason,
  type SandboxId,
  type SandboxRecord,
  type SandboxState,
  type SandboxUsage,
  type SpawnRequestInput,
} from "@atoll/protocol";
import type { AttachOptions } from "./guest/channel-options.ts";
import type { GuestChannel } from "./guest/channel.ts";
import { GuestFiles } from "./guest/files.ts";
import type { GuestConnection, NetworkCount } from "./guest/guest-connection.ts";
import type { GuestProcess } from "./guest/guest-process.ts";
import type { OutputPosition } from "./guest/guest-stream.ts";
import type { StreamEntry } from "./guest/messages.ts";
import { rlimits } from "./guest/requests.ts";
import type { SandboxLife } from "./lifecycle/sandbox-life.ts";
import type { SandboxGlance } from "./limits/usage-monitor.ts";
import { parseRequest } from "./support/parse-request.ts";

export type ProcessOptions = Omit<AttachOptions, "ranOutOfMemory">;

/** One sandbox, for the program that owns it. Every operation checks the lifecycle first. */
export class Sandbox {
  readonly files: GuestFiles;
  #life: SandboxLife;

  constructor(life: SandboxLife) {
    this.#life = life;
    this.files = new GuestFiles(() => {
      assertAccepts(life.record, "use files of");
      return life.channel;
    });
  }

  get id(): SandboxId {
    return this.#life.record.id;
  }

  get state(): SandboxState {
    return this.#life.record.state;
  }

  /** A directory, not made yet, for what the caller keeps about this sandbox. It is removed with the sandbox. */
  get ownerDir(): string {
    return this.#life.parts.layout.ownerDir;
  }

  /**
   * Whether the sandbox runs and its guest does not answer: then requests to the inside are refused with
   * `guest_silent`.
   */
  get isSilent(): boolean {
    return this.#life.silence !== undefined;
  }

  /**
   * Resolves when the guest has answered for the first time; at once, except for a sandbox that an earlier server
   * started.
   */
  get reached(): Promise<void> {
    return this.#life.firstAnswer.arrived;
  }

  get record(): SandboxRecord {
    return this.#life.record;
  }

  /** Starts a process. It is independent of its readers: it runs until it ends or is killed. */
  async spawn(request: SpawnRequestInput, options: ProcessOptions = {}): Promise<GuestProcess> {
    const spawn = parseRequest(SpawnRequest, request, "start a process");
    const { limits } = this.#channelFor("start a process in").record;
    const fileBytes = limits.fileBytes ?? limits.diskBytes;
    const processLimits = [
      { resource: rlimits.NPROC, soft: limits.processes, hard: limits.processes },
      { resource: rlimits.FSIZE, soft: fileBytes, hard: fileBytes },
    ];
    const ranOutOfMemory = this.#life.usage.watchForOutOfMemory();
    return this.#life.channel.spawn({ ...spawn, limits: processLimits }, { ...options, ranOutOfMemory });
  }

  /** The processes that an earlier server started and that are not attached yet. */
  get inherited(): readonly StreamEntry[] {
    return this.#channelFor("start a process in").channel.inherited;
  }

  /**
   * Returns a number for `spawn` that the caller stores first: the next server then finds the process, whenever this
   * one dies.
   */
  reserveStreamId(): number {
    return this.#channelFor("start a process in").channel.reserveStreamId();
  }

  /** Ends a process that an earlier server started, with all its descendants. */
  killInherited(streamId: number): void {
    this.#channelFor("start a process in").channel.killInherited(streamId);
  }

  /** Takes over a process that an earlier server started; output begins at `from`. */
  attach(streamId: number, from: OutputPosition, options: ProcessOptions = {}): GuestProcess {
    const { channel } = this.#channelFor("start a process in");
    return channel.attach(streamId, from, { ...options, ranOutOfMemory: this.#life.usage.watchForOutOfMemory() });
  }

  /** Connects to a port on the sandbox's loopback. */
  async dial(port: number, options: { family?: 4 | 6; signal: AbortSignal }): Promise<GuestConnection> {
    if (!Number.isInteger(port) || port < 1 || port > 65_535) {
      throw new SandboxError("invalid_argument", `Cannot connect to port ${port}: ports are 1 to 65535`);
    }
    return this.#channelFor("open a port of").channel.dial(port, options);
  }

  /** Starts the proxy inside through which its processes reach what the host allows. */
  async startProxy(port: number, options: { signal: AbortSignal }): Promise<void> {
    await this.#channelFor("open a port of").channel.startProxy(port, options.signal);
  }

  /**
   * Lets the sandbox run until this time, on the clock of `uptimeMs()`; undefined means no limit. At that moment
   * everything in it is frozen, also when this process is dead or stopped, and a later deadline lets it continue. The
   * deadline stays with the sandbox through pause and resume, and with a container through a change of servers; a
   * paused sandbox that a new engine finds has none. Resolves when the deadline is in force, and the sandbox answers if
   * it may run.
   */
  async allowUntil(untilUptimeMs: number | undefined): Promise<void> {
    if (untilUptimeMs !== undefined && !(Number.isFinite(untilUptimeMs) && untilUptimeMs >= 0)) {
      throw new SandboxError("invalid_argument", `Cannot let sandbox ${this.id} run until ${untilUptimeMs}`);
    }
    await this.#life.deadline.set(untilUptimeMs);
  }

  /** The last deadline that any server has set with `allowUntil`. */
  get allowedUntil(): number | undefined {
    return this.#life.deadline.uptimeMs;
  }

  /**
   * Returns how many processes run in the sandbox. Processes of the streams in `without`, and what these left behind,
   * do not count.
   */
  async countProcesses(options: { without?: readonly number[]; signal: AbortSignal }): Promise<number> {
    const { channel } = this.#channelFor("read usage of");
    return (await channel.countProcesses(options.signal, options.without)).processes;
  }

  async usage(): Promise<SandboxUsage> {
    assertAccepts(this.record, "read usage of");
    return this.#life.usage.read(this.id);
  }

  /** Sets the share of each limit at which an event says that it is near. */
  warnAt(softLimit: number): void {
    this.#life.usage.softLimit = softLimit;
  }

  /**
   * Returns what it uses as far as the host knows, without waking an idle sandbox; undefined while it does not run. The
   * network counts since this engine has the sandbox.
   */
  async peek(): Promise<(SandboxGlance & NetworkCount) | undefined> {
    const glance = this.state === "running" ? await this.#life.usage.peek() : undefined;
    return glance === undefined ? undefined : { ...glance, ...this.#life.network };
  }

  /** Lets it use only this share of its CPU time; 1 ends that, and so does its next container. */
  async throttle(share: number): Promise<void> {
    await this.#life.usage.throttle(this.id, share);
  }

  /** Lets it use this much memory above its limit, which saving it may need; 0 ends that, and so does its container. */
  async allowMoreMemory(bytes: number): Promise<void> {
    await this.#life.usage.allowMoreMemory(this.id, bytes);
  }

  /** Resolves when nothing of the sandbox is left, also if an earlier call kills it. Idempotent. */
  async kill(reason: EndReason = { kind: "asked", message: "it was killed on request" }): Promise<void> {
    assertAccepts(this.record, "kill");
    await this.#life.kill(reason);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  #channelFor(action: Parameters<typeof assertAccepts>[1]): { channel: GuestChannel; record: SandboxRecord } {
    assertAccepts(this.record, action);
    return { channel: this.#life.channel, record: this.record };
  }
}
