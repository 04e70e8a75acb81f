import { once } from "node:events";
import { currentCheckpoint, type Sandbox } from "@atoll/engine";
import {
  deadlineAfter,
  SandboxError,
  type EndReason,
  type EgressPolicy,
  type SandboxId,
  type SandboxInfo,
  type SandboxTimeouts,
} from "@atoll/protocol";
import type { Logger } from "pino";
import { SandboxCommands, type SandboxCommandsOptions } from "../commands/sandbox-commands.ts";
import { Turns } from "../support/turns.ts";
import { IdleClock } from "./idle-clock.ts";
import { assertFreeFor, heldBy, saveSettings, type Claimant, type SandboxSettings } from "./sandbox-settings.ts";

/** For the answer whether something runs inside. */
const lookInsideMs = 10_000;

/** How long a kill waits for a change that is being stored. */
const turnMs = 2_000;

export interface ManagedSandboxOptions extends Omit<SandboxCommandsOptions, "environment" | "rollbacks"> {
  facts: SandboxSettings;
  environment: Record<string, string>;
  onTimeout: (sandbox: ManagedSandbox, which: "idle" | "lifetime") => void;
  /** Commands of another server, or of the sandbox that it is a copy of, may be there. */
  hasPast: boolean;
  /** Where the facts of this sandbox are the truth, if not beside it; what rejects has not been changed. */
  storeSettings: (facts: SandboxSettings) => Promise<void>;
  /** Which server has it, and how it came there. */
  metadataCache: () => Pick<SandboxInfo, "server" | "takenOver">;
}

/**
 * One sandbox with everything that the server keeps about it. Changes of what is stored, and the end, happen one after
 * the other.
 */
export class ManagedSandbox {
  readonly sandbox: Sandbox;
  readonly commands: SandboxCommands;
  readonly clock: IdleClock;
  readonly #storeSettings: ManagedSandboxOptions["storeSettings"];
  readonly #metadataCache: ManagedSandboxOptions["metadataCache"];
  readonly #logger: Logger;
  /** Pauses, resumes, forks and rollbacks, one after the other. */
  readonly moves = new Turns();
  #facts: SandboxSettings;
  #turns = new Turns();
  #killing: Promise<void> | undefined;
  #hasPast: boolean;
  /** Its guest has not answered this server yet, or what runs in it is not carried on with yet. */
  #isUnreached = false;

  constructor(options: ManagedSandboxOptions) {
    const { sandbox, facts } = options;
    this.sandbox = sandbox;
    this.#facts = facts;
    this.#hasPast = options.hasPast;
    this.#storeSettings = options.storeSettings;
    this.#metadataCache = options.metadataCache;
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
      hasWork: () => this.commands.hasWork,
      findsWork: () => this.#findsWork(),
      onTimeout: (which) => {
        options.onTimeout(this, which);
      },
    });
    if (sandbox.state === "paused") this.clock.stop();
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

  /** How often it was rolled back. */
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
      runningCommands: this.commands.runningCount,
      ...(checkpoint === undefined ? {} : { checkpoint }),
      ...(rollbacks === 0 ? {} : { rollbacks }),
      persistent: this.#facts.persistent,
      ...this.#metadataCache(),
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

  /** It runs again, and its time begins anew. */
  async resumed(): Promise<void> {
    this.clock.restart();
    await this.#change("resume", (facts) => ({ ...facts, resumedAtMs: Date.now() }));
  }

  /** It runs as it was at an earlier time; what is known about it stays. */
  async rolledBack(storeSettings = this.#storeSettings): Promise<void> {
    this.clock.restart();
    await this.#turns.take(async () => {
      // In force also if it cannot be stored.
      this.#facts = { ...this.#facts, resumedAtMs: Date.now(), rollbacks: this.rollbacks + 1 };
      await storeSettings(this.#facts);
      await saveSettings(this.sandbox, this.#facts);
    });
  }

  /** For the holder itself it is a renewal. */
  hold(by: Claimant & { holder: string }, ttlMs: number): Promise<void> {
    return this.#change("hold", (facts) => {
      assertFreeFor(this.id, facts, by);
      return { ...facts, hold: { ...by, expiresAtMs: Date.now() + ttlMs } };
    });
  }

  /** Idempotent. */
  unhold(by: Claimant): Promise<void> {
    return this.#change("unhold", (facts) => {
      assertFreeFor(this.id, facts, by);
      const { hold: _, ...rest } = facts;
      return rest;
    });
  }

  /** Idempotent: whoever asks first gives the reason, all wait for the same end. */
  kill(reason: EndReason): Promise<void> {
    this.#killing ??= this.#kill(reason).catch((error: unknown) => {
      this.#killing = undefined;
      throw error;
    });
    return this.#killing;
  }

  /** Everything inside goes on, here or elsewhere; nothing is stored from now on, and whoever waits is told why. */
  detach(because?: SandboxError): void {
    this.clock.close();
    this.commands.detach(because);
  }

  /** Carries on with the commands that it has from elsewhere. Once; the sandbox has to answer if it runs. */
  async restoreCommands(): Promise<void> {
    if (!this.#hasPast) return;
    this.#hasPast = false;
    this.#isUnreached = this.sandbox.isSilent;
    await this.commands.restore();
    if (this.#isUnreached) void this.#carryOnWhenReached();
  }

  /** As they were changed elsewhere. */
  adopt(facts: SandboxSettings): Promise<void> {
    return this.#turns.take(() => this.#keep(facts));
  }

  /** Whether a process lives in it that it has to stay awake for. */
  async #findsWork(): Promise<boolean> {
    if (this.sandbox.state !== "running") return false;
    try {
      const signal = deadlineAfter(lookInsideMs);
      return (await this.sandbox.countProcesses({ without: this.commands.restingStreams, signal })) > 0;
    } catch (error) {
      // Who cannot say may be at work: nothing is lost by asking again.
      this.#logger.warn({ err: error }, "sandbox not asked whether it is idle");
      return this.sandbox.state === "running";
    }
  }

  async #kill(reason: EndReason): Promise<void> {
    this.clock.stop();
    // What is being stored is stored, or goes with the rest: a store that does not answer must not keep it alive.
    await Promise.race([this.#turns.take(async () => undefined), once(deadlineAfter(turnMs), "abort")]);
    await this.commands.abandon(`its sandbox was killed: ${reason.message}`);
    await this.sandbox.kill(reason);
  }

  async #carryOnWhenReached(): Promise<void> {
    try {
      await this.sandbox.reached;
      await this.commands.carryOn();
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
