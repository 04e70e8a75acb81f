import { type SignalName, signalNumbers } from "@atoll/protocol";
import { hasErrno } from "../support/errno.ts";
import { pollUntil } from "../support/poll-until.ts";
import { groupMembers } from "./proc-table.ts";

/** False when nobody is left in the group. */
export function signalGroup(groupId: number, signal: SignalName): boolean {
  try {
    return process.kill(-groupId, signalNumbers[signal]);
  } catch (error) {
    if (hasErrno(error, "ESRCH")) return false;
    // EPERM: there is somebody, who has become another user and cannot be signalled.
    if (hasErrno(error, "EPERM")) return true;
    throw error;
  }
}

/** Resolves to whether the group is gone within the deadline. */
export function waitForGroupEnd(groupId: number, deadlineMs: number): Promise<boolean> {
  return pollUntil(() => isGroupGone(groupId), { deadlineMs });
}

/**
 * Kills the group and resolves to whether it is gone within the deadline. A process that hangs in the kernel can
 * outlive its SIGKILL; it is the only thing that can.
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
  // The signal also reaches those that have ended and that their parent, perhaps an init that does not care, has not
  // reaped.
  return (await groupMembers(groupId)).length === 0;
}
