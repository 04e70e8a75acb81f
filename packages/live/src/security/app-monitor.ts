import type { Enforcement, Sampler, Usage, Violation } from "@atoll/guard";
import { SandboxError, standardProfile, type HardLimitAction, type SecurityProfile } from "@atoll/protocol";
import type { LiveEventBody } from "../events/live-event.ts";
import type { LiveApp } from "../manager/live-app.ts";

/** Throttled, an app gets this share of the processor time that it otherwise may use. */
const throttledShare = 0.25;

/** The subjects of a sampler share their ids with sandboxes, which never have a colon in theirs. */
const subjectId = (id: string): string => `app:${id}`;

/** Samples apps together with everything else that is monitored, and does what their profiles demand at a limit. */
export class AppMonitor implements Disposable {
  readonly #sampler: Sampler;
  readonly #subjects = new Map<string, Disposable>();
  readonly #stop: (() => void)[];

  constructor(sampler: Sampler, emit: (app: string, event: LiveEventBody) => void) {
    this.#sampler = sampler;
    const appOf = (subject: string): string | undefined =>
      [...this.#subjects.keys()].find((id) => subjectId(id) === subject);
    this.#stop = [
      sampler.onViolation((violation) => {
        const app = appOf(violation.id);
        if (app !== undefined) emit(app, violationEvent(violation));
      }),
      sampler.onEnforcement((enforcement) => {
        const app = appOf(enforcement.violation.id);
        if (app !== undefined) emit(app, enforcementEvent(enforcement));
      }),
    ];
  }

  /** Watches an app until it is forgotten. It is not sampled while it does not run. */
  watch(app: LiveApp, profile: SecurityProfile): void {
    const { memoryBytes, cpus, processes } = app.config.limits;
    const startedAtMs = Date.now();
    const subject = this.#sampler.add({
      id: subjectId(app.id),
      kind: "app",
      limits: { memoryBytes, cpus, processes },
      softLimit: profile.softLimit,
      // Without a profile a limit does only what the kernel does.
      ...(profile.name === standardProfile ? {} : { onHardLimit: profile.onHardLimit }),
      read: async (): Promise<Usage | undefined> => {
        if (app.info.state !== "running") return undefined;
        const usage = await app.running().process.usage();
        return { ...usage, uptimeMs: Date.now() - startedAtMs, diskBytes: 0, sentBytes: 0, receivedBytes: 0 };
      },
      enforce: (action, violation) => enforce(app, action, violation),
      relax: () => app.running().process.setCpus?.(app.config.limits.cpus) ?? Promise.resolve(),
    });
    this.#subjects.set(app.id, subject);
  }

  forget(id: string): void {
    this.#subjects.get(id)?.[Symbol.dispose]();
    this.#subjects.delete(id);
  }

  [Symbol.dispose](): void {
    for (const id of this.#subjects.keys()) this.forget(id);
    for (const stop of this.#stop) stop();
  }
}

async function enforce(app: LiveApp, action: HardLimitAction, violation: Violation): Promise<string | undefined> {
  if (app.info.state !== "running") return undefined;
  const reason = `it uses ${violation.used} of ${violation.allowed} of its limit of ${violation.limit}`;
  switch (action) {
    case "throttle": {
      const { process } = app.running();
      if (process.setCpus === undefined) {
        throw new SandboxError("unsupported", `Cannot throttle ${app.id}: its isolation has no way to`);
      }
      await process.setCpus(app.config.limits.cpus * throttledShare);
      return `it gets a quarter of its processor time, since ${reason}`;
    }
    case "stop_process":
      await app.running().process.kill();
      return `its process was ended, and starts again with its states, since ${reason}`;
    case "pause":
      await app.stop({ keepState: true, reason: `paused: ${reason}` });
      return `it was stopped and keeps its states until it is restarted, since ${reason}`;
    case "kill":
      await app.stop({ reason: `killed: ${reason}` });
      return `it was stopped, since ${reason}`;
  }
}

function violationEvent({ level, limit, used, allowed }: Violation): LiveEventBody {
  return { type: level === "soft" ? "limit.near" : "limit.hit", limit, used, allowed };
}

function enforcementEvent({ violation, action, result, because }: Enforcement): LiveEventBody {
  return { type: "limit.enforced", limit: violation.limit, action, result, because };
}
