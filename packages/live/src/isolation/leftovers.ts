import { readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hasErrno, type CgroupTree } from "@atoll/host";

/** The names of groups and of directories have the id of the manager's process, so that others see when it has died. */
export const groupNamespace = (pid: number): string => `live-${pid}`;
export const scratchPrefix = (pid: number): string => join(tmpdir(), `atoll-live-${pid}-`);

let removal: Promise<void> | undefined;

/** Removes what managers left behind that were killed: groups with what still runs in them, and directories. Once. */
export function removeLeftovers(tree: CgroupTree): Promise<void> {
  // What cannot be removed now hurts no app, and the next manager tries again.
  removal ??= Promise.allSettled([removeGroups(tree), removeScratch()]).then(() => undefined);
  return removal;
}

async function removeGroups(tree: CgroupTree): Promise<void> {
  for (const namespace of await namesIn(join(tree.roots[0] ?? "", "atoll"))) {
    const pid = Number(/^live-(\d+)$/.exec(namespace)?.[1]);
    if (!(pid > 0) || isThere(pid)) continue;
    for (const name of await tree.list(namespace)) {
      const group = await tree.open(name);
      // Processes of another container have no id here, and its managers neither.
      if ((await group.pids()).includes(0)) continue;
      await group.killAll({ deadlineMs: 5_000 });
      await group.remove();
    }
  }
}

async function removeScratch(): Promise<void> {
  for (const name of await namesIn(tmpdir())) {
    const pid = Number(/^atoll-live-(\d+)-\w{6}$/.exec(name)?.[1]);
    if (pid > 0 && !isThere(pid)) await rm(join(tmpdir(), name), { recursive: true, force: true });
  }
}

async function namesIn(directory: string): Promise<string[]> {
  return readdir(directory).catch((error: unknown) => {
    if (hasErrno(error, "ENOENT")) return [];
    throw error;
  });
}

function isThere(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return !hasErrno(error, "ESRCH");
  }
}
