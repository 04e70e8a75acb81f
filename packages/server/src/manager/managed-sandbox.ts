import { once } from "node:events";
import { currentCheckpoint, type Sandbox } from "@atoll/engine";
import {
  deadlineAfter,
  SandboxError,
  type EndReason,
  type EgressPolicy,
  type Isolated,
  type SandboxId,
  type SandboxInfo,
  type SandboxTimeouts,
} from "@atoll/protocol";
import type { Logger } from "pino";
import { SandboxCommands, type SandboxCommandsOptions } from "../commands/sandbox-commands.ts";
import { Turns } from "../support/turns.ts";
import { IdleClock, type Timeout } from "./idle-clock.ts";
import {
  assertNotHeldByOther,
  heldBy,
  profileOf,
  saveSettings,
  type Requester,
  type SandboxSettings,
} from "./sandbox-settings.ts";

/** The time limit for asking the guest whether a process runs inside. */
const countProcessesMs = 10_000;

/** How long a kill waits for a change that is being stored. */
const turnMs = 2_000;

export interface ManagedSandboxOptions extends Omit<SandboxCommandsOptions, "environment" | "rollbacks"> {
  facts: SandboxSettings;
  environment: Record<string, string>;
  onTimeout: (sandbox: ManagedSandbox, which: Timeout) => void;
  /** True if stored commands of an earlier server, or of the sandbox that it is a copy of, may be there. */
  hasEarlierCommands: boolean;
  /**
   * Stores changed settings in the metadata store if the sandbox is persistent. A change that rejects has not been
   * made.
   */
  storeSettings: (facts: SandboxSettings) => Promise<void>;
  /** Returns which server has the sandbox, and how it got there. */
  location: () => Pick<SandboxInfo, "server" | "takenOver">;
}

/**
 * One sandbox with everything that the server stores about it. Changes of what is stored, and the end, happen one after
 * the other.
 */
export class ManagedSandbox {
  readonly sandbox: Sandbox;
  readonly commands: SandboxCommands;
  readonly clock: IdleClock;
  readonly #storeSettings: ManagedSandboxOptions["storeSettings"];
  readonly #location: ManagedSandboxOptions["location"];
  readonly #logger: Logger;
  /** Serializes pauses, resumes, forks and rollbacks. */
  readonly transitions = new Turns();
  #facts: SandboxSettings;
  #turns = new Turns();
  #killing: Promise<void> | undefined;
  #hasEarlierCommands: boolean;
  /** True while its guest has not answered this server, or the commands in it are not continued yet. */
  #isUnreached = false;

  constructor(options: ManagedSandboxOptions) {
    const { sandbox, facts } = options;
    this.sandbox = sandbox;
    this.#facts = facts;
    this.#hasEarlierCommands = options.hasEarlierCommands;
    this.#storeSettings = options.storeSettings;
    this.#location = options.location;
    this.#logger = options.logger;
    this.commands = new SandboxCommands({
      ...options,
      environment: () => ({ ...options.environment, ...this.#facts.env }),
      rollbacks: () => this.rollbacks,
      onEnd: (command) => {
        this.clock.touch();
        options.onEnd(command);
      },
    });
    this.clock = new IdleClock({
      startedAtMs: facts.resumedAtMs ?? facts.createdAtMs,
      timeouts: () => this.#facts.timeouts,
      runTimeMs: () => this.#runTimeLeftMs,
      hasWork: () => this.commands.hasWork,
      findsWork: () => this.#findsWork(),
      onTimeout: (which) => {
        options.onTimeout(this, which);
      },
    });
    if (sandbox.state === "paused" || facts.isolated !== undefined) this.clock.stop();
  }

  get id(): SandboxId {
    return this.sandbox.id;
  }

  get facts(): SandboxSettings {
    return this.#facts;
  }

  get heldBy(): string | undefined {
    return heldBy(this.#facts);
  }

  /** The number of times that it was rolled back. */
  get rollbacks(): number {
    return this.#facts.rollbacks ?? 0;
  }

  info(): SandboxInfo {
    const { record } = this.sandbox;
    const { heldBy: holder, rollbacks } = this;
    const checkpoint = currentCheckpoint(record);
    const { endsAtMs } = this.clock;
    return {
      id: record.id,
      state: record.state,
      template: record.template,
      driver: record.driver,
      profile: profileOf(this.#facts).name,
      limits: record.limits,
      labels: this.#facts.labels,
      timeouts: this.#facts.timeouts,
      egress: this.#facts.egress,
      createdAtMs: this.#facts.createdAtMs,
      ...(endsAtMs === undefined ? {} : { endsAtMs }),
      owner: this.#facts.owner,
      ...(holder === undefined ? {} : { heldBy: holder }),
      ...("reason" in record ? { reason: record.reason } : {}),
      ...(this.sandbox.isSilent || this.#isUnreached ? { guest: "unresponsive" } : {}),
      ...(this.#facts.isolated === undefined ? {} : { isolated: this.#facts.isolated }),
      runningCommands: this.commands.runningCount,
      ...(checkpoint === undefined ? {} : { checkpoint }),
      ...(rollbacks === 0 ? {} : { rollbacks }),
      persistent: this.#facts.persistent,
      ...this.#location(),
    };
  }

  update(change: {
    timeouts?: SandboxTimeouts | undefined;
    labels?: Record<string, string> | undefined;
  }): Promise<void> {
    return this.#change("update", (facts) => ({
      ...facts,
      timeouts: change.timeouts ?? facts.timeouts,
      labels: change.labels ?? facts.labels,
    }));
  }

  setEgress(egress: EgressPolicy, egressCeiling: EgressPolicy): Promise<void> {
    return this.#change("change the egress policy of", (facts) => ({ ...facts, egress, egressCeiling }));
  }

  setPortPublic(port: number, isPublic: boolean): Promise<void> {
    return this.#change("change a port of", (facts) => {
      const others = facts.publicPorts.filter((other) => other !== port);
      return { ...facts, publicPorts: isPublic ? [...others, port] : others };
    });
  }

  /** Marks the sandbox as isolated, or ends that. */
  setIsolated(isolated: Isolated | undefined): Promise<void> {
    return this.#change("isolate", (facts) => {
      const { isolated: _, ...rest } = facts;
      return isolated === undefined ? rest : { ...rest, isolated };
    });
  }

  /** Records a resume: all timeouts start again, and what it ran before counts on. */
  async recordResume(ranMs: number | undefined): Promise<void> {
    this.clock.restart();
    await this.#change("resume", (facts) => resumedNow(facts, ranMs));
  }

  /** Records a rollback. The sandbox runs as it was at an earlier time; its settings stay. */
  async recordRollback(ranMs: number | undefined, storeSettings = this.#storeSettings): Promise<void> {
    this.clock.restart();
    await this.#turns.take(async () => {
      // The new settings apply even if they cannot be stored.
      this.#facts = { ...resumedNow(this.#facts, ranMs), rollbacks: this.rollbacks + 1 };
      await storeSettings(this.#facts);
      await saveSettings(this.sandbox, this.#facts);
    });
  }

  /** Gives the holder exclusive use, or renews it. */
  hold(by: Requester & { holder: string }, ttlMs: number): Promise<void> {
    return this.#change("hold", (facts) => {
      assertNotHeldByOther(this.id, facts, by);
      return { ...facts, hold: { ...by, expiresAtMs: Date.now() + ttlMs } };
    });
  }

  /** Ends the exclusive use; repeated calls are allowed. */
  unhold(by: Requester): Promise<void> {
    return this.#change("unhold", (facts) => {
      assertNotHeldByOther(this.id, facts, by);
      const { hold: _, ...rest } = facts;
      return rest;
    });
  }

  /** Kills the sandbox. The reason of the first call counts, and all calls wait for the same end. */
  kill(reason: EndReason): Promise<void> {
    this.#killing ??= this.#kill(reason).catch((error: unknown) => {
      this.#killing = undefined;
      throw error;
    });
    return this.#killing;
  }

  /**
   * Releases the sandbox without ending it: it goes on here or on another server, nothing is stored from now on, and
   * callers that wait get `because`.
   */
  detach(because?: SandboxError): void {
    this.clock.close();
    this.commands.detach(because);
  }

  /** Continues the commands of an earlier server, once. If the sandbox runs, its guest has to answer. */
  async restoreCommands(): Promise<void> {
    if (!this.#hasEarlierCommands) return;
    this.#hasEarlierCommands = false;
    this.#isUnreached = this.sandbox.isSilent;
    await this.commands.restore();
    if (this.#isUnreached) void this.#continueWhenReached();
  }

  /** Takes over settings that another server changed. */
  adoptSettings(facts: SandboxSettings): Promise<void> {
    return this.#turns.take(() => this.#keep(facts));
  }

  /** How long it may run from its last start on. A one-off run ends by the timeout of its command. */
  get #runTimeLeftMs(): number | undefined {
    const { profile, ranMs = 0, isOneOff } = this.#facts;
    const runTimeMs = profile?.limits.runTimeMs;
    return runTimeMs === undefined || isOneOff ? undefined : Math.max(0, runTimeMs - ranMs);
  }

  /** Reports whether a process runs in it that it has to stay awake for. */
  async #findsWork(): Promise<boolean> {
    if (this.sandbox.state !== "running") return false;
    try {
      const signal = deadlineAfter(countProcessesMs);
      return (await this.sandbox.countProcesses({ without: this.commands.backgroundStreams, signal })) > 0;
    } catch (error) {
      // A guest that does not answer may be at work: the clock asks again later.
      this.#logger.warn({ err: error }, "cannot determine whether the sandbox is idle");
      return this.sandbox.state === "running";
    }
  }

  async #kill(reason: EndReason): Promise<void> {
    this.clock.stop();
    // A change that is being stored is finished, or lost with the sandbox: a store that does not answer must not delay
    // the kill.
    await Promise.race([this.#turns.take(async () => undefined), once(deadlineAfter(turnMs), "abort")]);
    await this.commands.abandon(`its sandbox was killed: ${reason.message}`);
    await this.sandbox.kill(reason);
  }

  async #continueWhenReached(): Promise<void> {
    try {
      await this.sandbox.reached;
      await this.commands.continueSuspended();
    } catch (error) {
      this.#logger.warn({ err: error }, "sandbox ended before its guest answered");
    }
    this.#isUnreached = false;
  }

  async #change(what: string, edit: (facts: SandboxSettings) => SandboxSettings): Promise<void> {
    if (this.#killing !== undefined) {
      throw new SandboxError("sandbox_ended", `Cannot ${what} sandbox ${this.id}: it is being killed`);
    }
    await this.#turns.take(async () => {
      const next = edit(this.#facts);
      await this.#storeSettings(next);
      await this.#keep(next);
    });
  }

  async #keep(facts: SandboxSettings): Promise<void> {
    await saveSettings(this.sandbox, facts);
    this.#facts = facts;
    this.clock.reset();
  }
}

function resumedNow(facts: SandboxSettings, ranMs: number | undefined): SandboxSettings {
  return { ...facts, resumedAtMs: Date.now(), ...(ranMs === undefined ? {} : { ranMs }) };
}
