import { type SignalName, signalNumbers } from "@atoll/protocol";
import { hasErrno } from "../support/errno.ts";
import { pollUntil } from "../support/poll-until.ts";
import { groupMembers } from "./proc-table.ts";

/** Returns false when the group has no process left. */
export function signalGroup(groupId: number, signal: SignalName): boolean {
  try {
    return process.kill(-groupId, signalNumbers[signal]);
  } catch (error) {
    if (hasErrno(error, "ESRCH")) return false;
    // EPERM: the group has a process that changed its user and cannot be signalled.
    if (hasErrno(error, "EPERM")) return true;
    throw error;
  }
}

/** Resolves to whether the group is gone within the deadline. */
export function waitForGroupEnd(groupId: number, deadlineMs: number): Promise<boolean> {
  return pollUntil(() => isGroupGone(groupId), { deadlineMs });
}

/**
 * Kills the group and resolves to whether it is gone within the deadline. Only a process that hangs in the kernel can
 * survive SIGKILL.
 */
export function killGroup(groupId: number, deadlineMs: number): Promise<boolean> {
  return pollUntil(async () => !signalGroup(groupId, "SIGKILL") || (await isGroupGone(groupId)), {
    deadlineMs,
  });
}

async function isGroupGone(groupId: number): Promise<boolean> {
  try {
    process.kill(-groupId, 0);
  } catch (error) {
    if (hasErrno(error, "ESRCH")) return true;
    if (!hasErrno(error, "EPERM")) throw error;
  }
  // A signal can also be sent to processes that have ended and that their parent, perhaps a container's init, has not
  // reaped.
  return (await groupMembers(groupId)).length === 0;
}
