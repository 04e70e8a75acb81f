import type { Violation } from "@atoll/guard";
import { SandboxError, type EndReason, type HardLimitAction, type SandboxUsage } from "@atoll/protocol";
import type { ManagedSandbox } from "../manager/managed-sandbox.ts";
import type { PauseResume } from "../manager/pause-resume.ts";
import { largestCommand } from "./largest-command.ts";

/** A throttled sandbox gets this share of its CPU time. */
const throttledShare = 0.25;
/** What the runtime needs in addition to save the memory of a sandbox. */
const memoryToSaveBytes = 128 * 1024 * 1024;
/** Below this share of its limit, a sandbox is no longer at it. */
const hitShare = 0.95;

export interface LimitActionsOptions {
  pauseResume: Pick<PauseResume, "pause">;
  kill: (id: ManagedSandbox["id"], reason: EndReason) => Promise<unknown>;
}

/** Does to a sandbox what its profile demands at a limit. Resolves to what was done; undefined if nothing had to be. */
export async function actOnLimit(
  managed: ManagedSandbox,
  action: HardLimitAction,
  violation: Violation,
  { pauseResume, kill }: LimitActionsOptions,
): Promise<string | undefined> {
  const { id, sandbox } = managed;
  if (sandbox.state !== "running" && action !== "kill") return undefined;
  switch (action) {
    case "throttle":
      await sandbox.throttle(throttledShare);
      return `it gets ${throttledShare * 100} % of its CPU time until it is far from its limits`;
    case "stop_process":
      return stopLargest(managed, violation);
    case "pause":
      return pause(managed, pauseResume);
    case "kill":
      await kill(id, { kind: kindOf(violation), message: `it reached a limit: ${sentenceOf(violation)}` });
      return "it was killed";
  }
}

/** A process that cannot be saved must not protect its sandbox from the pause. */
async function pause(
  { id, sandbox }: ManagedSandbox,
  pauseResume: LimitActionsOptions["pauseResume"],
): Promise<string> {
  // Without it, the kernel would kill a sandbox that has no memory left while its memory is being saved.
  await sandbox.allowMoreMemory(memoryToSaveBytes);
  try {
    await pauseResume.pause(id, { force: true });
    return "it was paused";
  } catch (error) {
    if (sandbox.state === "running") await sandbox.allowMoreMemory(0);
    throw error;
  }
}

async function stopLargest(managed: ManagedSandbox, { limit, allowed }: Violation): Promise<string | undefined> {
  const { sandbox, commands, id } = managed;
  // The kernel, or the command itself, may have ended it already.
  if (usedOf(await sandbox.usage(), limit) < allowed * hitShare) return undefined;
  const command = await largestCommand(sandbox, commands.running, limit);
  if (command === undefined) {
    throw new SandboxError("not_found", `Cannot stop a process of sandbox ${id}: no command runs in it`);
  }
  await command.signal("SIGKILL");
  return `command ${command.id} was stopped`;
}

function usedOf(usage: SandboxUsage, limit: Violation["limit"]): number {
  switch (limit) {
    case "memory":
      return usage.memoryBytes;
    case "disk":
      return usage.diskBytes;
    case "processes":
      return usage.processes;
    case "cpu":
    case "lifetime":
      return 0;
  }
}

function kindOf({ limit }: Violation): EndReason["kind"] {
  return limit === "memory" || limit === "disk" || limit === "processes" ? limit : "asked";
}

function sentenceOf({ limit, used, allowed }: Violation): string {
  return `${limit}, with ${used} of ${allowed}`;
}
