import { readdir, readFile } from "node:fs/promises";
import { bootId, type CgroupTree, hasErrno, isAlive, pollUntil, readStartTicks, run } from "@atoll/host";
import { deadlineAfter, SandboxError } from "@atoll/protocol";
import type { DataLayout } from "../store/layout.ts";

const killDeadlineMs = 10_000;
const unmountTimeoutMs = 10_000;

/** Something on the host with our mark that belongs to no living sandbox. */
export interface Stray {
  what: string;
  /** The id of the container that it is of, as far as that is known. */
  of?: string;
  /** Resolves when it is gone, and rejects when it stays. */
  remove: () => Promise<void>;
}

/** Finds cgroups of this data directory that belong to no living container. */
export async function findStrayGroups(
  cgroups: CgroupTree,
  { namespace }: DataLayout,
  living: ReadonlySet<string>,
): Promise<Stray[]> {
  const names = await cgroups.list(namespace);
  return names
    .filter((name) => !living.has(name.slice(namespace.length + 1)))
    .map((name) => ({
      what: `cgroup ${name}`,
      of: name.slice(namespace.length + 1),
      remove: async () => {
        const cgroup = await cgroups.open(name);
        await cgroup.killAll({ deadlineMs: killDeadlineMs });
        await cgroup.remove();
      },
    }));
}

/**
 * Finds launchers that work in this data directory for no living container. A launcher that died between two of our
 * steps has no cgroup.
 */
export async function findStrayLaunchers(layout: DataLayout, living: ReadonlySet<string>): Promise<Stray[]> {
  const found: Stray[] = [];
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const words = (await readFile(`/proc/${name}/cmdline`, "utf8").catch(() => "")).split("\0");
    const runDir = words[words.indexOf("--dir") + 1] ?? "";
    if (words[1] !== "launch" || !runDir.startsWith(`${layout.sandboxesDir}/`)) continue;
    const of = runDir.slice(runDir.lastIndexOf("/") + 1);
    if (living.has(of)) continue;
    found.push({ what: `process ${name}`, of, remove: () => killAndWait(Number(name)) });
  }
  return found;
}

/**
 * Finds mounts in our own namespace. Containers have mounts in their own namespaces, so these were made by hand or by a
 * fault. A mount on top of another one comes first, because it has to be removed first.
 */
export async function findStrayMounts({ sandboxesDir }: DataLayout): Promise<Stray[]> {
  const table = await readFile("/proc/self/mountinfo", "utf8");
  return table
    .split("\n")
    .map((line) => unescapeMount(line.split(" ")[4] ?? ""))
    .filter((target) => target.startsWith(`${sandboxesDir}/`))
    .toReversed()
    .map((target) => ({ what: `mount ${target}`, remove: () => unmount(target) }));
}

async function unmount(target: string): Promise<void> {
  const { exitCode, stderr } = await run("umount", ["--lazy", target], {
    signal: deadlineAfter(unmountTimeoutMs),
    timeoutMs: unmountTimeoutMs,
  });
  if (exitCode === 0) return;
  throw new SandboxError("in_use", `Cannot unmount ${target}: ${stderr.trim()}`, {
    suggestion: `Unmount it by hand: umount ${target}`,
  });
}

async function killAndWait(pid: number): Promise<void> {
  const startTicks = await readStartTicks(pid);
  if (startTicks === undefined) return;
  const identity = { pid, startTicks, bootId: await bootId() };
  const isGone = async (): Promise<boolean> => {
    if (!(await isAlive(identity))) return true;
    try {
      process.kill(pid, "SIGKILL");
    } catch (error) {
      if (!hasErrno(error, "ESRCH")) throw error;
    }
    return false;
  };
  if (await pollUntil(isGone, { deadlineMs: killDeadlineMs })) return;
  throw new SandboxError("timed_out", `Cannot kill process ${pid}: it is still there`, {
    suggestion: "A process that survives SIGKILL hangs in the kernel: check the disks and file systems that it uses.",
  });
}

/** The kernel writes spaces and similar characters as octal. */
function unescapeMount(text: string): string {
  return text.replace(/\\(\d{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}
