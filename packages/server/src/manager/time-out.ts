import type { EndReason, SandboxId } from "@atoll/protocol";
import type { Logger } from "pino";
import type { Timeout } from "./idle-clock.ts";
import type { ManagedSandbox } from "./managed-sandbox.ts";
import type { PauseResume } from "./pause-resume.ts";
import { profileOf } from "./sandbox-settings.ts";
import type { ServerAudit } from "./server-audit.ts";

export interface TimeOutOptions {
  pauseResume: PauseResume;
  kill: (id: SandboxId, reason: EndReason) => Promise<unknown>;
  audit: ServerAudit;
  log: Logger;
}

/** Pauses or kills a sandbox at its timeout, as its settings say. A kill that fails is retried. */
export async function timeOut(
  managed: ManagedSandbox,
  which: Timeout,
  { pauseResume, kill, audit, log }: TimeOutOptions,
): Promise<void> {
  const { id, facts } = managed;
  if (facts.isolated !== undefined) return;
  const { idleMs = 0, lifetimeMs = 0 } = facts.timeouts;
  const { name, limits } = profileOf(facts);
  const messages: Record<Timeout, string> = {
    idle: `it was idle for ${idleMs} ms`,
    lifetime: `it has lived for ${lifetimeMs} ms`,
    run_time: `it has run for ${limits.runTimeMs} ms, which is all that the profile ${name} allows`,
  };
  const message = messages[which];
  // Paused, it could never run again.
  const onTimeout = which === "run_time" ? "kill" : facts.timeouts.onTimeout;
  log.info({ sandboxId: id, timeout: which, onTimeout }, "sandbox timed out");
  try {
    const isPaused = onTimeout === "pause" && (await pauseResume.pauseAtTimeout(managed));
    if (onTimeout === "kill") await kill(id, { kind: which, message });
    const result = onTimeout === "kill" || isPaused ? "ok" : "refused";
    audit.record({ who: "server", what: "timeout", sandboxId: id, result, details: { timeout: which, onTimeout } });
  } catch (error) {
    log.error({ err: error, sandboxId: id }, "sandbox not killed after its timeout, retrying");
    managed.clock.retry(which);
  }
}
