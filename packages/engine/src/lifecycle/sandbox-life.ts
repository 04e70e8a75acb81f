import { once } from "node:events";
import { messageOf } from "@atoll/host";
import { firstToAbort, SandboxError, type ContainerId, type EndReason, type SandboxRecord } from "@atoll/protocol";
import { optionalBase } from "../checkpoints/current-checkpoint.ts";
import { startFailed } from "../drivers/container-runs.ts";
import type { Container, DriverLaunchOptions, LaunchSource } from "../drivers/driver.ts";
import { GuestChannel } from "../guest/channel.ts";
import type { NetworkCount } from "../guest/guest-connection.ts";
import { makeNodes } from "../guest/guest-nodes.ts";
import { timeoutAfter } from "../support/timeout-after.ts";
import { warn } from "../support/warn.ts";
import { endReason, explainEnd, startTimedOut } from "./container-end.ts";
import { failedRecord } from "./failed-record.ts";
import { FirstAnswer } from "./first-answer.ts";
import type { MoveOptions, SandboxLifeOptions, StartOptions, TakeOverOptions } from "./life-options.ts";
import { lifetimeEvent, watchLifetime } from "./lifetime.ts";
import { LiveUsage } from "./live-usage.ts";
import { SandboxDeadline } from "./sandbox-deadline.ts";

/**
 * A start that does not react to its abort is abandoned after this long; what it still makes is removed when it
 * settles.
 */
const abandonStartMs = 5_000;

/**
 * The running half of one sandbox: its container, its channel, its lifetime. Start, adoption, death and kill all pass
 * through here, so that the first of them wins and each is undone completely.
 */
export class SandboxLife {
  readonly deadline: SandboxDeadline;
  readonly usage = new LiveUsage();
  /** What its connections have carried since this engine has the sandbox. */
  readonly network: NetworkCount = { sentBytes: 0, receivedBytes: 0 };
  /** The first answer in a container that an earlier server started. */
  readonly firstAnswer = new FirstAnswer();
  #options: SandboxLifeOptions;
  #containerId: ContainerId | undefined;
  #container: Container | undefined;
  #channel: GuestChannel | undefined;
  /** The channel to the earlier memory, while it may be needed again. */
  #leftChannel: GuestChannel | undefined;
  #watchedChannel: GuestChannel | undefined;
  #stopLifetime: () => void = () => undefined;
  #killRequested = new AbortController();
  /** Aborts when the guest gets no more requests. */
  #channelAbort = new AbortController();
  #starting: Promise<void> = Promise.resolve();
  #killing: Promise<void> | undefined;
  #detached = false;
  /** Whether nothing in the sandbox runs for a moment, because its files are being copied. */
  isFrozen = false;

  constructor(options: SandboxLifeOptions) {
    this.#options = options;
    this.deadline = new SandboxDeadline(options.keeper.record.id);
  }

  get record(): SandboxRecord {
    return this.#options.keeper.record;
  }

  get parts(): Pick<SandboxLifeOptions, "keeper" | "layout" | "driver" | "template" | "idle"> {
    return this.#options;
  }

  /** The container that it has, or that is being started or removed. */
  get containerId(): ContainerId | undefined {
    return this.#containerId;
  }

  get channel(): GuestChannel {
    this.deadline.assertReachable();
    if (this.firstAnswer.silence !== undefined) throw this.firstAnswer.silence;
    if (this.#channel === undefined)
      throw new Error(`Sandbox ${this.record.id} is ${this.record.state} without a channel`);
    return this.#channel;
  }

  /** The error that requests to the inside get; undefined if the guest answers, as far as is known. */
  get silence(): SandboxError | undefined {
    return this.record.state === "running" ? (this.firstAnswer.silence ?? this.#channel?.silence) : undefined;
  }

  /** Runs one operation after the other. A kill aborts the one that runs and waits for it. */
  inTurn<T>(work: (killed: AbortSignal) => Promise<T>): Promise<T> {
    const killed = this.#killRequested.signal;
    const turn = this.#starting.then(() => {
      killed.throwIfAborted();
      return work(killed);
    });
    this.#starting = turn.then(() => undefined).catch(() => undefined);
    return turn;
  }

  /**
   * Starts a sandbox, from `creating` to `running`; nothing runs before `intent` is stored. When it rejects, nothing of
   * the container is left.
   */
  start(containerId: ContainerId, intent: Promise<void>, options: StartOptions): Promise<void> {
    return this.inTurn(async (killed) => {
      using signal = firstToAbort(options.signal, killed);
      await this.#start(containerId, intent, { ...options, signal });
    });
  }

  /**
   * Resolves when the sandbox is not changing its state. A sandbox that is being created is not waited for, because no
   * client has it.
   */
  async settled(): Promise<void> {
    if (this.record.state === "pausing" || this.record.state === "resuming") await this.#starting;
  }

  /** Stops routine questions to the container, and makes its timers punctual. */
  stopMonitor(): void {
    this.usage.stop();
    this.#options.idle.leave();
  }

  /** Kills all processes in the container of a sandbox that was saved; `leaveContainer` waits for them. */
  async endContainer(): Promise<void> {
    this.#closeChannels();
    if (this.#containerId !== undefined) await this.#options.driver.end(this.#containerId);
  }

  /** Ends the container of a sandbox that was saved. Its streams wait for the next one. */
  async leaveContainer(): Promise<void> {
    this.#closeChannels();
    await this.#removeContainer();
    this.#containerId = undefined;
  }

  /** Ends the streams of the earlier memory for their readers and writers. */
  dropStreams(): void {
    this.#leftChannel?.close();
    this.#leftChannel = undefined;
  }

  /**
   * Starts another container. The same streams continue in it if it has the same memory; otherwise they wait until they
   * are dropped. When it rejects, nothing of the container is left, and the streams wait for the next one.
   */
  async moveTo(containerId: ContainerId, from: LaunchSource, options: MoveOptions): Promise<Container> {
    const { mayStart = Promise.resolve() } = options;
    using stop = firstToAbort(options.signal, timeoutAfter(mayStart, this.#options.startTimeoutMs));
    try {
      const container = await this.#launch(containerId, from, { signal: stop, mayStart });
      options.onLaunched();
      if (!options.keepsStreams) {
        this.#leftChannel = this.#channel;
        this.#channel = undefined;
      }
      await this.#greet(container, from, stop);
      return container;
    } catch (error) {
      await this.leaveContainer();
      options.signal.throwIfAborted();
      throw stop.aborted ? startTimedOut(this.record.id, this.#options.startTimeoutMs) : error;
    }
  }

  /** Watches the limits, the end and the lifetime of the sandbox from now on. */
  live(layerBytes = 0): void {
    if (this.#container !== undefined) this.#live(this.#container, this.channel, layerBytes);
  }

  /**
   * Finds the container that an earlier server started, and until when it may run. Returns false if it does not run any
   * more.
   */
  async findContainer(): Promise<boolean> {
    const { driver, layout } = this.#options;
    const { record } = this;
    if (!("container" in record)) throw new Error(`A ${record.state} sandbox has no container`);
    this.#containerId = record.container.id;
    this.#container = await driver.adopt(record.container, layout);
    if (this.#container === undefined) return false;
    await this.deadline.inherit(this.#container.deadline);
    // The earlier server may have died while the sandbox was idle, and a launcher of an older build does not remove the
    // slack.
    (await driver.findTimerSlack?.(this.#container, layout).catch(() => undefined))?.remove();
    return true;
  }

  /**
   * Takes over the container that was found. Resolves to false if its guest has not answered yet: then the sandbox
   * runs, and its requests are refused until it answers.
   */
  async takeOver({ withinMs, onReached }: TakeOverOptions): Promise<boolean> {
    const container = this.#container;
    if (container === undefined) throw new Error(`No container of sandbox ${this.record.id} was found`);
    const { keeper, driver, layout } = this.#options;
    const { record } = this;
    // The thaw of a container that is gone fails; the channel reports its end.
    if (record.state === "pausing") {
      await driver.freezer?.thaw(record.container, layout).catch(() => undefined);
      const { container: ref, base } = record;
      await keeper.apply("refused", (common) => ({
        ...common,
        state: "running",
        container: ref,
        ...optionalBase(base),
      }));
    }
    const { signal } = this.#channelAbort;
    const answer = this.#openChannel(container, { isFirstHost: false, signal });
    return this.firstAnswer.wait(record.id, answer, {
      withinMs,
      onReached,
      onChange: this.#emitGuest,
      onFailed: (error) => {
        if (!signal.aborted) this.#failInBackground({ kind: "server", message: messageOf(error) });
      },
    });
  }

  /**
   * Kills the sandbox; the first reason counts. A call that rejects has changed nothing and may be repeated.
   * Idempotent.
   */
  kill(reason: EndReason): Promise<void> {
    return this.#endOnce(() => this.#kill(reason));
  }

  /** Removes the sandbox from here as `kill` does, without emitting an end: it lives on another server. */
  release(): Promise<void> {
    return this.#endOnce(() => this.#release());
  }

  /** Detaches without ending anything: the sandbox runs on for the next server. */
  detach(): void {
    this.#detached = true;
    this.#channelAbort.abort();
    this.dropStreams();
    this.#stopWatching();
    this.#channel?.close();
  }

  /** Fails a sandbox that died, or has to end: its container goes, its files stay, and its record says why. */
  async fail(reason: EndReason): Promise<void> {
    if (this.#killing !== undefined || this.#detached || this.record.state === "failed") return;
    this.#stopWatching();
    const { record } = this;
    await this.#options.keeper.apply("fault", (common) => failedRecord(common, record, reason));
    this.#channel?.close();
    // The kernel's count goes with the container.
    if (reason.kind === "memory") await this.usage.reportOutOfMemory().catch(warn);
    await this.#removeContainer();
  }

  async #start(containerId: ContainerId, intent: Promise<void>, options: StartOptions): Promise<void> {
    const { keeper, startTimeoutMs } = this.#options;
    const { signal, from, base, layerBytes, proxyPort } = options;
    using stop = firstToAbort(signal, timeoutAfter(Promise.resolve(), startTimeoutMs));
    try {
      const container = await this.#launch(containerId, from, { signal: stop, mayStart: intent });
      await this.#greet(container, from, stop);
      const running = { state: "running" as const, container: container.ref };
      await Promise.all([
        keeper.apply("started", (common) => ({ ...common, ...running, ...optionalBase(base) })),
        proxyPort === undefined ? undefined : this.channel.startProxy(proxyPort, stop),
      ]);
      this.live(layerBytes);
    } catch (error) {
      this.#channel?.close();
      await this.#removeContainer();
      signal.throwIfAborted();
      throw stop.aborted ? startTimedOut(this.record.id, this.#options.startTimeoutMs) : error;
    }
  }

  async #launch(
    containerId: ContainerId,
    from: LaunchSource | undefined,
    options: DriverLaunchOptions,
  ): Promise<Container> {
    const { driver, layout, template } = this.#options;
    const { id, limits } = this.record;
    this.deadline.assertMayStart();
    this.#containerId = containerId;
    const spec = { containerId, hostname: id, layout, template, limits, ...(from === undefined ? {} : { from }) };
    const container = await driver.launch(spec, { ...options, allowedUntil: () => this.deadline.uptimeMs });
    this.#container = container;
    await this.deadline.enter(container.deadline);
    return container;
  }

  /**
   * Says hello to the guest of a new container. A restored guest also gets its host name and randomness, a new one its
   * pipes and sockets.
   */
  async #greet(container: Container, from: LaunchSource | undefined, signal: AbortSignal): Promise<void> {
    await this.#openChannel(container, { isFirstHost: true, signal });
    if (from?.memoryDir !== undefined) await this.channel.sendRestored(this.record.id, signal);
    for (const order of (await from?.nodes) ?? []) await makeNodes(this.channel, order, signal);
  }

  async #openChannel(container: Container, options: { isFirstHost: boolean; signal: AbortSignal }): Promise<void> {
    const launcherGone = new AbortController();
    void container.launcherGone.then(() => launcherGone.abort());
    const channelOptions = {
      paths: container.fifos,
      signal: firstToAbort(options.signal, launcherGone.signal),
      traffic: this.#options.idle,
      network: this.network,
      explainEnd: async () => explainEnd(this.record, await container.findExit()),
      watch: {
        sandboxId: this.record.id,
        timeoutMs: this.#options.guestTimeoutMs,
        mayBeStill: () => this.record.state !== "running" || this.isFrozen || this.deadline.hasPassed,
        onChange: this.#emitGuest,
      },
    };
    try {
      if (this.#channel?.isOpen === true) await this.#channel.moveTo(channelOptions);
      else {
        const { onEgress } = this.#options;
        this.#channel = await GuestChannel.open({ ...channelOptions, isFirstHost: options.isFirstHost, onEgress });
      }
    } catch (error) {
      if (options.signal.aborted || (error instanceof SandboxError && error.code === "unsupported")) throw error;
      throw startFailed(await container.findExit(), "the guest's hello");
    }
  }

  #live(container: Container, channel: GuestChannel, layerBytes: number): void {
    const { driver, layout, idle } = this.#options;
    this.usage.watch(this.record, this.#options, {
      cgroup: container.cgroup,
      channel,
      layerBytes,
      emit: this.#options.events.emit,
      onOverrun: (message) => this.#failInBackground({ kind: "disk", message }),
    });
    idle.watch(async () => driver.findTimerSlack?.(container, layout));
    channel.commitMove();
    // A channel may have ended during a change of state, which then reports the end; only a running sandbox fails here.
    if (this.#watchedChannel !== channel || !channel.isOpen) {
      this.#watchedChannel = channel;
      void channel.closed.then((reason) => {
        if (reason !== undefined && this.record.state === "running") this.#failInBackground(endReason(reason));
      });
    }
    this.watchLifetime();
  }

  /** Watches the lifetime of a sandbox that runs or is paused, because it counts in both states. */
  watchLifetime(): void {
    this.#stopLifetime();
    const { record } = this;
    this.#stopLifetime = watchLifetime(record, () => {
      this.#options.events.emit(lifetimeEvent(record));
      this.kill({ kind: "lifetime", message: `it has lived for ${record.limits.lifetimeMs} ms` }).catch(warn);
    });
  }

  #endOnce(end: () => Promise<void>): Promise<void> {
    this.#killing ??= end().catch((error: unknown) => {
      this.#killing = undefined;
      throw error;
    });
    return this.#killing;
  }

  async #kill(reason: EndReason): Promise<void> {
    const { keeper } = this.#options;
    this.#stopWatching();
    await keeper.apply("kill", (common) => ({ ...common, state: "killing", reason }));
    await this.#clear(reason.message);
    await keeper.forget(reason);
    await this.#options.onGone();
  }

  async #release(): Promise<void> {
    const { keeper, onRelease, onGone } = this.#options;
    this.#stopWatching();
    await keeper.apply("release", (common) => ({ ...common, state: "released" }));
    await onRelease("intent");
    await this.#clear("it lives on another machine");
    await onRelease("stopped");
    await keeper.drop();
    await onRelease("removed");
    await onGone();
  }

  /** Ends every operation and everything that runs. */
  async #clear(because: string): Promise<void> {
    this.#killRequested.abort(new SandboxError("sandbox_ended", `Cannot start sandbox ${this.record.id}: ${because}`));
    this.#channelAbort.abort();
    // The guest is not waited for: operations that ask it, or wait for its processes, end now.
    this.#channel?.close();
    if (this.#containerId !== undefined) await this.#options.driver.end(this.#containerId).catch(warn);
    const abandoned = timeoutAfter(Promise.resolve(), abandonStartMs);
    await Promise.race([this.#starting, once(abandoned, "abort")]);
    if (abandoned.aborted) void this.#starting.then(() => this.#removeContainer()).catch(warn);
    this.dropStreams();
    this.#channel?.close();
    await this.#removeContainer();
  }

  #takeBackStreams(): void {
    if (this.#leftChannel === undefined) return;
    this.#channel?.close();
    this.#channel = this.#leftChannel;
    this.#leftChannel = undefined;
  }

  #emitGuest = (isSilent: boolean): void => {
    const guest = isSilent ? "unresponsive" : "responsive";
    this.#options.events.emit({ type: "guest", sandboxId: this.record.id, atMs: Date.now(), guest });
  };

  #failInBackground(reason: EndReason): void {
    this.fail(reason).catch(warn);
  }

  #stopWatching(): void {
    this.stopMonitor();
    this.#stopLifetime();
  }

  #closeChannels(): void {
    this.stopMonitor();
    this.#takeBackStreams();
    this.#channel?.leave();
  }

  async #removeContainer(): Promise<void> {
    this.deadline.leave();
    if (this.#containerId !== undefined) await this.#options.driver.remove(this.#containerId, this.#options.layout);
  }
}
