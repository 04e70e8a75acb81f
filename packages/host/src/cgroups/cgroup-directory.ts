import { dirname, join } from "node:path";
import { SandboxError } from "@atoll/protocol";
import { hasErrno } from "../support/errno.ts";
import { pollUntil } from "../support/poll-until.ts";
import type { CgroupKernel } from "./cgroup-kernel.ts";

/** The kernel removes a group a moment after its last process. */
const removeDeadlineMs = 5_000;

/**
 * Another engine removes the empty parents of its own groups, which may be parents of ours too: then they are made
 * again.
 */
const mostAttempts = 10;

/**
 * Makes the group's directory in a controller's root, with its parents. Resolves to whether the directory of all
 * namespaces was made with it.
 */
export async function makeGroupDirectory(kernel: CgroupKernel, directory: string): Promise<boolean> {
  let isNewTree = false;
  for (let attempt = 1; ; attempt++) {
    try {
      await kernel.makeDirectory(directory);
      return isNewTree;
    } catch (error) {
      if (!hasErrno(error, "ENOENT") || attempt === mostAttempts) throw error;
      isNewTree = (await makeIfAbsent(kernel, dirname(dirname(directory)))) || isNewTree;
      await makeIfAbsent(kernel, dirname(directory));
    }
  }
}

async function makeIfAbsent(kernel: CgroupKernel, directory: string): Promise<boolean> {
  try {
    await kernel.makeDirectory(directory);
    return true;
  } catch (error) {
    // ENOENT: the parent was removed in between; the next attempt makes it again.
    if (!hasErrno(error, "EEXIST", "ENOENT")) throw error;
    return false;
  }
}

/**
 * Removes the group's directories and all groups below them. The parents are removed too when they are empty, which the
 * kernel decides. Idempotent.
 */
export async function removeGroupDirectories(
  kernel: CgroupKernel,
  name: string,
  directories: readonly string[],
): Promise<void> {
  const areGone = await pollUntil(
    async () => (await Promise.all(directories.map((directory) => removeBranch(kernel, directory)))).every(Boolean),
    { deadlineMs: removeDeadlineMs },
  );
  if (!areGone) {
    throw new SandboxError("in_use", `Cannot remove cgroup ${name}: there are processes in it`, {
      suggestion: "Kill its processes first.",
      details: { pids: await pidsOf(kernel, directories) },
    });
  }
  await Promise.all(
    directories.map(async (directory) => {
      await removeIfEmpty(kernel, dirname(directory));
      await removeIfEmpty(kernel, dirname(dirname(directory)));
    }),
  );
}

async function removeBranch(kernel: CgroupKernel, directory: string): Promise<boolean> {
  for (const child of await kernel.children(directory)) {
    if (!(await removeBranch(kernel, join(directory, child)))) return false;
  }
  return removeIfEmpty(kernel, directory);
}

async function removeIfEmpty(kernel: CgroupKernel, directory: string): Promise<boolean> {
  try {
    await kernel.removeDirectory(directory);
    return true;
  } catch (error) {
    if (hasErrno(error, "ENOENT")) return true;
    // cgroup v1 and v2 say EBUSY for processes and for groups below.
    if (hasErrno(error, "EBUSY", "ENOTEMPTY")) return false;
    throw error;
  }
}

/** Returns all processes in these groups and below, once each. */
export async function pidsOf(kernel: CgroupKernel, directories: readonly string[]): Promise<number[]> {
  const found = await Promise.all(directories.map((directory) => pidsBelow(kernel, directory)));
  return [...new Set(found.flat())];
}

async function pidsBelow(kernel: CgroupKernel, directory: string): Promise<number[]> {
  const [listed, children] = await Promise.all([
    kernel.read(join(directory, "cgroup.procs")),
    kernel.children(directory),
  ]);
  const below = await Promise.all(children.map((child) => pidsBelow(kernel, join(directory, child))));
  // 0 stands for a process of a PID namespace that we cannot see; to `kill` it would mean this process itself.
  const here = (listed ?? "").split("\n").map(Number);
  return [...here.filter((pid) => pid > 0), ...below.flat()];
}

/** Returns the error for a group that cannot be created, with the meaning of the kernel's error. */
export function cannotCreate(name: string, cause: unknown): unknown {
  const message = `Cannot create cgroup ${name}`;
  if (hasErrno(cause, "EEXIST")) return new SandboxError("already_exists", `${message}: it exists already`, { cause });
  const refusal = refusals.find(({ codes }) => hasErrno(cause, ...codes));
  if (refusal === undefined) return cause;
  const { reason, suggestion } = refusal;
  return new SandboxError("unsupported", `${message}: ${reason}`, { cause, suggestion });
}

const refusals = [
  {
    codes: ["EROFS", "EACCES", "EPERM"],
    reason: "the cgroup filesystem cannot be written",
    suggestion: "Run the engine as root and, if it runs in a container, with /sys/fs/cgroup mounted for writing.",
  },
  {
    codes: ["ENOENT"],
    reason: "the kernel does not offer the controller that the limits need",
    suggestion: "Look for memory, cpu and pids in /proc/cgroups and in the root's cgroup.controllers.",
  },
  {
    codes: ["EBUSY"],
    reason: "the group above has processes of its own and so cannot enable controllers for groups below it",
    suggestion: "Move them to a group below it, or start the engine in the host's own cgroup namespace.",
  },
];

/** Returns the error of a memory limit below the memory that is in use and cannot be freed. */
export function memoryInUse(name: string, limitBytes: number, usedBytes: number): SandboxError {
  return new SandboxError("in_use", `Cannot limit cgroup ${name} to ${limitBytes} bytes: it uses ${usedBytes}`, {
    details: { limitBytes, usedBytes },
  });
}

/** Returns the error of `killAll` when its deadline has passed. */
export function stillAlive(name: string, pids: number[]): SandboxError {
  return new SandboxError("timed_out", `Cannot kill all processes of cgroup ${name}: ${pids.length} are left`, {
    suggestion: "A process that survives SIGKILL hangs in the kernel: check the disks and file systems that it uses.",
    details: { pids },
  });
}

/** Returns the error of `freeze` when its deadline has passed. */
export function notFrozen(name: string): SandboxError {
  return new SandboxError("timed_out", `Cannot freeze cgroup ${name}: a process in it does not freeze`);
}

/** Returns the value of a line `key value` in a file; undefined when the file or the line does not exist. */
export function valueOf(text: string | undefined, key: string): number | undefined {
  const line = text?.split("\n").find((line) => line.startsWith(`${key} `));
  return line === undefined ? undefined : Number(line.slice(key.length + 1));
}
