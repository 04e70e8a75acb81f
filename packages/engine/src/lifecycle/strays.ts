import { readdir, readFile } from "node:fs/promises";
import { deadlineAfter } from "@atoll/protocol";
import { run } from "../process/run.ts";
import type { DataLayout } from "../store/layout.ts";
import { pollUntil } from "../support/poll-until.ts";

const killDeadlineMs = 10_000;
const unmountTimeoutMs = 10_000;

/** Ends launchers that work in this data directory for no living container: those that died between two of our steps have no cgroup. */
export async function removeStrayProcesses(layout: DataLayout, living: ReadonlySet<string>): Promise<string[]> {
  const removed: string[] = [];
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const words = (await readFile(`/proc/${name}/cmdline`, "utf8").catch(() => "")).split("\0");
    const runDir = words[words.indexOf("--dir") + 1] ?? "";
    if (words[1] !== "launch" || !runDir.startsWith(`${layout.sandboxesDir}/`)) continue;
    if (living.has(runDir.slice(runDir.lastIndexOf("/") + 1))) continue;
    const pid = Number(name);
    await killAndWait(pid);
    removed.push(`process ${pid}`);
  }
  return removed;
}

/** Mounts are made in namespaces of the containers' own; one in ours was made by hand, or by something that went wrong. */
export async function removeStrayMounts(layout: DataLayout): Promise<string[]> {
  const table = await readFile("/proc/self/mountinfo", "utf8");
  const targets = table
    .split("\n")
    .map((line) => unescapeMount(line.split(" ")[4] ?? ""))
    .filter((target) => target.startsWith(`${layout.sandboxesDir}/`))
    .toReversed();
  for (const target of targets) {
    await run("umount", ["--lazy", target], {
      signal: deadlineAfter(unmountTimeoutMs),
      timeoutMs: unmountTimeoutMs,
    });
  }
  return targets.map((target) => `mount ${target}`);
}

async function killAndWait(pid: number): Promise<void> {
  const isGone = (): boolean => {
    try {
      process.kill(pid, "SIGKILL");
      return false;
    } catch {
      return true;
    }
  };
  await pollUntil(isGone, { deadlineMs: killDeadlineMs });
}

/** The kernel writes spaces and the like as octal. */
function unescapeMount(text: string): string {
  return text.replace(/\\(\d{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}
