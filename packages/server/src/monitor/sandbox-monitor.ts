import type { Engine } from "@atoll/engine";
import { LeftoverWatch, RateLimiter, Sampler, type Enforcement, type Violation } from "@atoll/guard";
import { SandboxError, type SandboxEventMessage, type SandboxId, type UsageHistory } from "@atoll/protocol";
import type { Logger } from "pino";
import type { NewEvent } from "../events/event-journal.ts";
import type { ManagedSandbox } from "../manager/managed-sandbox.ts";
import type { ServerAudit } from "../manager/server-audit.ts";
import { actOnLimit, type LimitActionsOptions } from "./limit-actions.ts";

/** How many lines about the limits of one sandbox the audit log gets: it could come near a limit again and again. */
const auditedPerMinute = 20;

export interface MonitorOptions {
  /** The time between two samples of a sandbox. */
  intervalMs?: number;
  /** How many samples of each sandbox are kept. */
  keep?: number;
  /** The time between the end of a sandbox and the search for what it has left. */
  leftoverCheckMs?: number;
}

export interface SandboxMonitorParts extends LimitActionsOptions {
  engine: Pick<Engine, "findLeftovers" | "events">;
  audit: Pick<ServerAudit, "record">;
  emit: (event: NewEvent) => void;
  log: Logger;
}

/** Watches what the sandboxes of a server use, what they do at their limits, and what they leave behind. */
export class SandboxMonitor {
  readonly sampler: Sampler;
  readonly leftovers: LeftoverWatch;
  readonly #parts: SandboxMonitorParts;
  readonly #watched = new Map<SandboxId, Disposable>();
  readonly #auditRate = new RateLimiter();

  constructor(options: MonitorOptions, parts: SandboxMonitorParts) {
    this.#parts = parts;
    const { intervalMs = 5_000, keep = 360, leftoverCheckMs = 30_000 } = options;
    this.sampler = new Sampler({ intervalMs, keep });
    this.sampler.onViolation((violation) => this.#recordViolation(violation));
    this.sampler.onEnforcement((enforcement) => this.#recordEnforcement(enforcement));
    this.leftovers = new LeftoverWatch({
      checkMs: leftoverCheckMs,
      find: () => parts.engine.findLeftovers(),
      onFound: ({ kind, what }) => {
        parts.log.warn({ kind, what }, "left behind by a sandbox");
        parts.emit({ type: "resource.left", kind, what });
        parts.audit.record({ who: "server", what: "leftover", result: "found", details: { kind, what } });
      },
      onError: (error) => parts.log.warn({ err: error }, "cannot look for what sandboxes left behind"),
    });
    parts.engine.events.listen((message) => this.#take(message));
    // An earlier server may have left something that it could not remove.
    this.leftovers.ended();
  }

  watch(managed: ManagedSandbox): void {
    const { id, sandbox, facts } = managed;
    const { softLimit, onHardLimit } = facts.profile ?? {};
    if (softLimit !== undefined) sandbox.warnAt(softLimit);
    this.forget(id);
    const watched = this.sampler.add({
      id,
      kind: "sandbox",
      softLimit,
      onHardLimit,
      read: async () => {
        const glance = await sandbox.peek();
        const { resumedAtMs, createdAtMs } = managed.facts;
        return glance === undefined ? undefined : { ...glance, uptimeMs: Date.now() - (resumedAtMs ?? createdAtMs) };
      },
      enforce: (action, violation) => actOnLimit(managed, action, violation, this.#parts),
      relax: () => sandbox.throttle(1),
    });
    this.#watched.set(id, watched);
  }

  forget(id: SandboxId): void {
    this.#watched.get(id)?.[Symbol.dispose]();
    this.#watched.delete(id);
    this.#auditRate.forget(id);
  }

  history(id: SandboxId, sinceMs = 0): UsageHistory {
    const history = this.sampler.history(id);
    if (history === undefined) {
      throw new SandboxError("not_found", `Cannot read usage of sandbox ${id}: it is not on this server`, {
        details: { sandboxId: id },
      });
    }
    return { ...history, samples: history.samples.filter(({ atMs }) => atMs >= sinceMs) };
  }

  close(): void {
    this.leftovers.close();
    this.sampler.close();
  }

  #take(message: SandboxEventMessage): void {
    const { sandboxId: id } = message;
    switch (message.type) {
      case "limit.near":
      case "limit.hit":
      case "limit.eased":
        return this.sampler.report(id, message);
      case "state":
        // What was done about a limit, such as a throttle, ends with the container.
        this.sampler.reset(id);
        if (message.to === "killed" || message.to === "released") {
          this.forget(id);
          this.leftovers.ended();
        }
        return;
      case "guest":
    }
  }

  #recordViolation({ id, level, limit, used, allowed, consequence }: Violation): void {
    const result = level === "hard" ? "hit" : "near";
    this.#record(id, "limit", result, { limit, used, allowed, ...(consequence === undefined ? {} : { consequence }) });
  }

  #recordEnforcement({ violation: { id, limit }, action, result, because }: Enforcement): void {
    this.#parts.emit({ type: "limit.enforced", sandboxId: id as SandboxId, limit, action, result, because });
    this.#record(id, "limitAction", result === "done" ? "ok" : "failed", { limit, action, because });
  }

  #record(id: string, what: string, result: string, details: Record<string, unknown>): void {
    if (this.#auditRate.take(id, auditedPerMinute) > 0) return;
    this.#parts.audit.record({ who: "server", what, sandboxId: id, result, details }, "security");
  }
}
