import { SandboxError, type ContainerId, type EndReason, type SandboxRecord, type SandboxUsage } from "@atoll/protocol";
import { startFailed } from "../drivers/container-runs.ts";
import type { Container, ContainerExit, Driver } from "../drivers/driver.ts";
import { GuestChannel } from "../guest/channel.ts";
import type { EgressHandler } from "../guest/egress-relay.ts";
import { UsageMonitor } from "../limits/usage-monitor.ts";
import type { SandboxLayout } from "../store/layout.ts";
import type { Template } from "../templates/template.ts";
import type { EventLog } from "./event-log.ts";
import type { RecordKeeper } from "./record-keeper.ts";

/** A start that does not heed its abort is left behind after this long; whatever it still makes is removed when it settles. */
const abandonStartMs = 5_000;
/** Node cannot wait longer than this at once. */
const longestTimerMs = 2 ** 31 - 1;

export interface SandboxLifeOptions {
  keeper: RecordKeeper;
  layout: SandboxLayout;
  driver: Driver;
  template: Template;
  events: EventLog;
  /** How long the guest may take to answer the first greeting. */
  startTimeoutMs: number;
  onEgress?: EgressHandler | undefined;
  /** Called once, when the sandbox is gone for good. */
  onGone: () => void;
}

/**
 * The running half of one sandbox: its container, its channel, its clock. Start, adoption, death and kill all pass through here, so that
 * whichever comes first wins and each is undone completely.
 */
export class SandboxLife {
  #options: SandboxLifeOptions;
  #containerId: ContainerId | undefined;
  #channel: GuestChannel | undefined;
  #monitor: UsageMonitor | undefined;
  #lifetimeTimer: NodeJS.Timeout | undefined;
  #killRequested = new AbortController();
  #starting: Promise<void> = Promise.resolve();
  #killing: Promise<void> | undefined;
  #detached = false;

  constructor(options: SandboxLifeOptions) {
    this.#options = options;
  }

  get record(): SandboxRecord {
    return this.#options.keeper.record;
  }

  get ownerDir(): string {
    return this.#options.layout.ownerDir;
  }

  get channel(): GuestChannel {
    if (this.#channel === undefined)
      throw new Error(`Sandbox ${this.record.id} is ${this.record.state} without a channel`);
    return this.#channel;
  }

  /** From `creating` to `running`; nothing runs before `intent` is stored. When it rejects, nothing of the container is left. */
  async start(containerId: ContainerId, intent: Promise<void>, signal: AbortSignal): Promise<void> {
    this.#killRequested.signal.throwIfAborted();
    this.#containerId = containerId;
    const work = this.#start(containerId, intent, AbortSignal.any([signal, this.#killRequested.signal]));
    this.#starting = work.catch(() => undefined);
    await work;
  }

  /** Takes over a container that a server before this one started. False: it does not run any more. */
  async adopt(signal: AbortSignal): Promise<boolean> {
    const record = this.record;
    if (record.state !== "running" && record.state !== "pausing") throw new Error(`Cannot adopt while ${record.state}`);
    this.#containerId = record.container.id;
    const { driver, layout, keeper } = this.#options;
    const container = await driver.adopt(record.container, layout);
    if (container === undefined) return false;
    const channel = await this.#openChannel(container, { isFirstHost: false, signal });
    if (record.state === "pausing") {
      await keeper.apply("refused", (common) => ({ ...common, state: "running", container: record.container }));
    }
    this.#live(container, channel);
    return true;
  }

  async readUsage(): Promise<SandboxUsage> {
    if (this.#monitor === undefined) throw new Error(`Sandbox ${this.record.id} is not watched`);
    return this.#monitor.read();
  }

  /** Asked of the result later: whether memory has run out since now. */
  watchForOutOfMemory(): () => Promise<boolean> {
    const monitor = this.#monitor;
    const before = monitor?.oomKills ?? 0;
    return async () => monitor !== undefined && (await monitor.lookForOom()) > before;
  }

  /** Idempotent; the first reason counts. */
  kill(reason: EndReason): Promise<void> {
    this.#killing ??= this.#kill(reason);
    return this.#killing;
  }

  /** Lets go without ending anything: the sandbox runs on for the next server. */
  detach(): void {
    this.#detached = true;
    this.#stopWatching();
    this.#channel?.close();
  }

  /** The sandbox died, or has to: its container goes, its files stay, and its record says why. */
  async fail(reason: EndReason): Promise<void> {
    if (this.#killing !== undefined || this.#detached || this.record.state === "failed") return;
    this.#stopWatching();
    const survives = ["files" as const];
    await this.#options.keeper.apply("fault", (common) => ({
      ...common,
      state: "failed",
      reason,
      endedAtMs: Date.now(),
      survives,
    }));
    this.#channel?.close();
    await this.#removeContainer();
  }

  async #start(containerId: ContainerId, intent: Promise<void>, signal: AbortSignal): Promise<void> {
    const { driver, layout, template, keeper, startTimeoutMs } = this.#options;
    const { id, limits } = this.record;
    const late = new SandboxError("start_failed", `Cannot start sandbox ${id}: no answer within ${startTimeoutMs} ms`, {
      details: { phase: "guest hello" },
    });
    const stop = AbortSignal.any([signal, AbortSignal.timeout(startTimeoutMs)]);
    try {
      const container = await driver.launch(
        { containerId, hostname: id, layout, template, limits },
        { signal: stop, mayStart: intent },
      );
      const channel = await this.#openChannel(container, { isFirstHost: true, signal: stop });
      await keeper.apply("started", (common) => ({ ...common, state: "running", container: container.ref }));
      this.#live(container, channel);
    } catch (error) {
      this.#channel?.close();
      await this.#removeContainer();
      signal.throwIfAborted();
      throw stop.aborted ? late : error;
    }
  }

  async #openChannel(
    container: Container,
    options: { isFirstHost: boolean; signal: AbortSignal },
  ): Promise<GuestChannel> {
    const launcherGone = new AbortController();
    void container.launcherGone.then(() => launcherGone.abort());
    try {
      this.#channel = await GuestChannel.open({
        paths: container.fifos,
        isFirstHost: options.isFirstHost,
        signal: AbortSignal.any([options.signal, launcherGone.signal]),
        onEgress: this.#options.onEgress,
        explainEnd: async () => this.#explain(await container.findExit()),
      });
      return this.#channel;
    } catch (error) {
      if (options.signal.aborted || (error instanceof SandboxError && error.code === "unsupported")) throw error;
      throw startFailed(await container.findExit(), "the guest's hello");
    }
  }

  #live(container: Container, channel: GuestChannel): void {
    const { layout, template, events } = this.#options;
    const { id, limits } = this.record;
    this.#monitor = new UsageMonitor({
      sandboxId: id,
      limits,
      cgroup: container.cgroup,
      channel,
      upperDirs: template.trees.map((_, index) => layout.layer(index).upper),
      tell: events.tell,
      onOverrun: (usedBytes) => {
        const message = `its files take ${usedBytes} bytes, ${limits.diskBytes} are allowed, and it went on writing`;
        this.#failInBackground({ kind: "disk", message });
      },
    });
    void channel.closed.then((reason) => {
      if (reason !== undefined) this.#failInBackground(endReason(reason));
    });
    this.#watchLifetime();
  }

  #watchLifetime(): void {
    const { expiresAtMs } = this.record;
    if (expiresAtMs === undefined) return;
    const leftMs = expiresAtMs - Date.now();
    const expire = (): void => {
      if (Date.now() < expiresAtMs) return this.#watchLifetime();
      const { lifetimeMs = 0 } = this.record.limits;
      this.#options.events.tell({
        type: "limit.hit",
        sandboxId: this.record.id,
        atMs: Date.now(),
        limit: "lifetime",
        used: Date.now() - this.record.createdAtMs,
        allowed: lifetimeMs,
        consequence: "the sandbox is killed",
      });
      this.kill({ kind: "lifetime", message: `it has lived for ${lifetimeMs} ms` }).catch(warn);
    };
    this.#lifetimeTimer = setTimeout(expire, Math.min(Math.max(0, leftMs), longestTimerMs));
    this.#lifetimeTimer.unref();
  }

  async #kill(reason: EndReason): Promise<void> {
    const { keeper, onGone } = this.#options;
    this.#stopWatching();
    await keeper.apply("kill", (common) => ({ ...common, state: "killing", reason }));
    this.#killRequested.abort(
      new SandboxError("sandbox_ended", `Cannot start sandbox ${this.record.id}: ${reason.message}`),
    );
    const abandoned = AbortSignal.timeout(abandonStartMs);
    await Promise.race([this.#starting, aborted(abandoned)]);
    if (abandoned.aborted) void this.#starting.then(() => this.#removeContainer()).catch(warn);
    this.#channel?.close();
    await this.#removeContainer();
    await keeper.forget(reason);
    onGone();
  }

  #failInBackground(reason: EndReason): void {
    this.fail(reason).catch(warn);
  }

  #stopWatching(): void {
    this.#monitor?.stop();
    clearTimeout(this.#lifetimeTimer);
  }

  async #removeContainer(): Promise<void> {
    if (this.#containerId !== undefined) await this.#options.driver.remove(this.#containerId, this.#options.layout);
  }

  #explain(exit: ContainerExit): SandboxError {
    const { id, limits } = this.record;
    const how = exit.outOfMemory
      ? `it used more than its ${limits.memoryBytes} bytes of memory`
      : `its runtime ended with ${exit.signal ?? (exit.exitCode === null ? "no status" : `exit code ${exit.exitCode}`)}`;
    return new SandboxError("sandbox_ended", `Cannot go on: sandbox ${id} has ended: ${how}`, {
      suggestion: exit.outOfMemory
        ? "Raise limits.memoryBytes, or use less."
        : "details.stderr has the runtime's own words.",
      details: { sandboxId: id, outOfMemory: exit.outOfMemory, stderr: exit.stderr },
    });
  }
}

function endReason(error: SandboxError): EndReason {
  if (error.code === "guest_violation") return { kind: "guest", message: error.message };
  const kind = error.details["outOfMemory"] === true ? "memory" : "exited";
  return { kind, message: error.message };
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/** Background work has nobody to reject to; a person reads it in the log. */
function warn(error: unknown): void {
  process.emitWarning(error instanceof Error ? error : String(error), { type: "AtollCleanupError" });
}
