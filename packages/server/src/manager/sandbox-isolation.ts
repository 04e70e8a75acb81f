import { uptimeMs } from "@atoll/engine";
import { ThreatLedger } from "@atoll/guard";
import {
  SandboxError,
  type EgressPolicy,
  type Isolated,
  type SandboxEventMessage,
  SandboxId,
  type SandboxInfo,
  type ThreatKind,
} from "@atoll/protocol";
import type { Logger } from "pino";
import type { NewEvent } from "../events/event-journal.ts";
import { SandboxEvidence } from "./evidence.ts";
import type { ManagedSandbox } from "./managed-sandbox.ts";
import type { PauseResume } from "./pause-resume.ts";
import type { SandboxChanges } from "./sandbox-changes.ts";
import type { SandboxSettings } from "./sandbox-settings.ts";
import type { ServerAudit } from "./server-audit.ts";

export interface SandboxIsolationOptions {
  /** Returns the sandbox if it is here. */
  get: (id: SandboxId) => ManagedSandbox | undefined;
  pauseResume: PauseResume;
  changes: SandboxChanges;
  audit: ServerAudit;
  emit: (event: NewEvent) => void;
  /** How often limits may be reached in ten minutes; 0 means any number of times. */
  mostLimitHits: number;
  log: Logger;
}

/** One object, because compiled policies are kept by object. */
const reachesNothing: EgressPolicy = { allow: [], deny: [] };

const windowMs = 10 * 60_000;

/**
 * Isolates sandboxes that attack what surrounds them: what they reach is cut, and they are saved or frozen until an
 * operator releases or kills them. The mark is stored first and everything that runs a sandbox checks it, so that an
 * isolation holds also across a crash.
 */
export class SandboxIsolation {
  readonly evidence: SandboxEvidence;
  readonly #options: SandboxIsolationOptions;
  readonly #ledger: ThreatLedger;
  readonly #cuts = new Set<(id: SandboxId) => void>();
  readonly #working = new Map<SandboxId, Promise<SandboxInfo>>();

  constructor(options: SandboxIsolationOptions) {
    this.#options = options;
    options.audit.onViolation = ({ sandboxId, what }) => {
      const id = SandboxId.safeParse(sandboxId).data;
      if (id !== undefined) this.report(id, "protocol_violation", `the answer to ${what} broke the rules`);
    };
    this.evidence = new SandboxEvidence({
      find: (id) => this.#find(id),
      log: options.audit.log,
      reportsOf: (id) => this.#ledger.reportsOf(id),
      checkpointsOf: (id) => options.pauseResume.checkpoints(id),
    });
    this.#ledger = new ThreatLedger({
      thresholds: {
        protocol_violation: 1,
        // Programs may install filters of their own, so one is no attack yet.
        seccomp_kill: 3,
        limit_violations: options.mostLimitHits,
        operator: 0,
      },
      windowMs,
      onThreat: ({ id, kind, reason }) => void this.#isolateLogged(id as SandboxId, kind, reason),
    });
  }

  /** Finds signs of attacks in what the engine reports. */
  watch(message: SandboxEventMessage): void {
    const { sandboxId } = message;
    if (
      message.type === "limit.hit" &&
      (message.limit === "memory" || message.limit === "processes" || message.limit === "disk")
    ) {
      this.report(sandboxId, "limit_violations", `${message.limit}: ${message.consequence}`);
    }
    if (message.type !== "state") return;
    if (message.to === "killed" || message.to === "released") this.#ledger.forget(sandboxId);
    if (message.to !== "failed" || message.reason === undefined) return;
    const { kind, message: why } = message.reason;
    if (kind === "guest") this.report(sandboxId, "protocol_violation", why);
    // The runtime does so only if code has got out of its sandbox: once is enough.
    if (kind === "seccomp") void this.#isolateLogged(sandboxId, "seccomp_kill", why);
  }

  /** Counts a sign of an attack; enough of them isolate the sandbox. */
  report(id: SandboxId, kind: ThreatKind, details: string): void {
    if (this.#options.get(id) !== undefined) this.#ledger.report(id, kind, details);
  }

  /** Calls the listener when a sandbox may reach nothing any more: it closes what is open. */
  onCut(listener: (id: SandboxId) => void): void {
    this.#cuts.add(listener);
  }

  /** Isolates a sandbox; calls at the same time wait for the same isolation. */
  isolate(id: SandboxId, kind: ThreatKind, reason: string): Promise<SandboxInfo> {
    const working = this.#working.get(id) ?? this.#isolate(id, kind, reason).finally(() => this.#working.delete(id));
    this.#working.set(id, working);
    return working;
  }

  async #isolateLogged(id: SandboxId, kind: ThreatKind, reason: string): Promise<void> {
    await this.isolate(id, kind, reason).catch((error: unknown) => {
      this.#options.log.error({ err: error, sandboxId: id }, "sandbox not isolated");
    });
  }

  async #isolate(id: SandboxId, kind: ThreatKind, reason: string): Promise<SandboxInfo> {
    const managed = this.#find(id);
    if (managed.facts.isolated !== undefined) return managed.info();
    const { changes, log } = this.#options;
    log.warn({ sandboxId: id, kind, reason }, "sandbox is isolated");
    await changes.setIsolated(id, { sinceMs: Date.now(), kind, reason, heldAs: "running" });
    return this.#hold(id);
  }

  /** Finishes an isolation that the end of a server interrupted. */
  async finish(id: SandboxId): Promise<void> {
    const { isolated } = this.#find(id).facts;
    if (isolated?.heldAs !== "running") return;
    await this.#hold(id).catch((error: unknown) => {
      this.#options.log.error({ err: error, sandboxId: id }, "isolation not finished");
    });
  }

  async #hold(id: SandboxId): Promise<SandboxInfo> {
    const { changes, audit, emit, log } = this.#options;
    for (const cut of this.#cuts) cut(id);
    const managed = this.#find(id);
    const { isolated } = managed.facts;
    if (isolated === undefined) return managed.info();
    managed.clock.stop();
    const heldAs = await this.#stop(managed);
    const info = await changes.setIsolated(id, { ...isolated, heldAs });
    const { kind, reason } = isolated;
    emit({ type: "sandbox.isolated", sandboxId: id, kind, reason, heldAs });
    const result = heldAs === "running" ? "failed" : "ok";
    const details = { kind, reason, heldAs, reports: this.#ledger.reportsOf(id) };
    audit.record({ who: "server", what: "isolate", sandboxId: id, result, details }, "security");
    await this.evidence.write(id, "isolated").catch((error: unknown) => {
      log.error({ err: error, sandboxId: id }, "evidence not written; the commands and the audit log still have it");
    });
    return info;
  }

  /** Saves the sandbox, or freezes it where that is refused: a hostile guest does not take part in its own pause. */
  async #stop(managed: ManagedSandbox): Promise<Isolated["heldAs"]> {
    const { pauseResume, log } = this.#options;
    const { id, sandbox, facts } = managed;
    // A resume or fork that began before the mark was stored has to end first.
    await managed.transitions.take(async () => undefined);
    const settled = (): Isolated["heldAs"] => (sandbox.state === "paused" ? "checkpoint" : "ended");
    if (sandbox.state !== "running") return settled();
    try {
      // The lease of a persistent sandbox extends its time again and again, so that it cannot stay frozen.
      await pauseResume.pause(id, { force: facts.persistent });
      return "checkpoint";
    } catch (error) {
      if (sandbox.state !== "running") return settled();
      log.warn({ err: error, sandboxId: id }, "an isolated sandbox cannot be saved: it is frozen");
    }
    if (facts.persistent) return "running";
    try {
      await sandbox.allowUntil(uptimeMs());
      return "frozen";
    } catch (error) {
      if (sandbox.state !== "running") return settled();
      log.error({ err: error, sandboxId: id }, "an isolated sandbox still runs, without network");
      return "running";
    }
  }

  /** Ends the isolation. A sandbox that was frozen goes on; one that was saved resumes when it is used. */
  async release(id: SandboxId, who: string): Promise<SandboxInfo> {
    await this.#working.get(id);
    const { changes, audit, emit } = this.#options;
    const managed = this.#find(id);
    const { isolated } = managed.facts;
    if (isolated === undefined) {
      throw new SandboxError("invalid_state", `Cannot release sandbox ${id}: it is not isolated`, {
        details: { sandboxId: id, state: managed.sandbox.state },
      });
    }
    const info = await changes.setIsolated(id, undefined);
    this.#ledger.forget(id);
    if (managed.sandbox.state === "running") {
      await managed.sandbox.allowUntil(undefined);
      await managed.restoreCommands();
      managed.clock.restart();
    }
    emit({ type: "sandbox.isolation_ended", sandboxId: id, who });
    audit.record({ who, what: "release", sandboxId: id, result: "ok", details: { ...isolated } }, "security");
    return info;
  }

  #find(id: SandboxId): ManagedSandbox {
    const managed = this.#options.get(id);
    if (managed !== undefined) return managed;
    throw new SandboxError("not_found", `Cannot find sandbox ${id}: it is not here`);
  }
}

/** Returns what a sandbox may reach: nothing while it is isolated. */
export function egressTerms(settings: SandboxSettings): Pick<SandboxSettings, "egress" | "egressCeiling" | "profile"> {
  return settings.isolated === undefined ? settings : { egress: reachesNothing };
}

/** Throws while a sandbox is isolated: nothing that a client does may run it. */
export function assertNotIsolated(id: SandboxId, { isolated }: { isolated?: Isolated | undefined }): void {
  if (isolated === undefined) return;
  throw new SandboxError("isolated", `Cannot use sandbox ${id}: it is isolated, because ${isolated.reason}`, {
    suggestion: "An operator can look at its evidence, and release or kill it.",
    details: { sandboxId: id, kind: isolated.kind, sinceMs: isolated.sinceMs },
  });
}
