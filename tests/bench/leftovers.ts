import { access, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Sandbox } from "@atoll/engine";
import { launcherPid, type Lab } from "./lab.ts";
import { readLauncherCommand } from "./launcher-command.ts";
import { ProcessTable, type ProcessEntry } from "./process-tree.ts";

/** Traces of one sandbox on the host. They are recorded while it lives, and must be gone after a kill. */
export interface Traces {
  sandboxId: string;
  processes: ProcessEntry[];
  cgroups: string[];
  directory: string;
}

export interface Leftovers {
  processes: number;
  cgroups: number;
  mounts: number;
  directories: number;
}

export async function noteTraces(lab: Lab, sandbox: Sandbox): Promise<Traces> {
  const pid = launcherPid(sandbox);
  const { cgroups } = await readLauncherCommand(pid);
  const directory = join(lab.dataDir, "sandboxes", sandbox.id);
  const traces = { sandboxId: sandbox.id, processes: (await ProcessTable.read()).family(pid), cgroups, directory };
  // A trace that is not found while the sandbox lives proves nothing when it is absent later.
  if (
    traces.processes.length < 2 ||
    cgroups.length === 0 ||
    (await countExisting([...cgroups, directory])) <= cgroups.length
  ) {
    throw new Error(`Cannot find the traces of the living sandbox ${sandbox.id}`);
  }
  return traces;
}

export async function countLeftovers(traces: Traces): Promise<Leftovers> {
  const table = await ProcessTable.read();
  return {
    processes: traces.processes.filter((entry) => table.has(entry)).length,
    cgroups: await countExisting(traces.cgroups),
    mounts: await countMounts(traces.sandboxId),
    directories: await countExisting([traces.directory]),
  };
}

async function countExisting(paths: readonly string[]): Promise<number> {
  const found = await Promise.all(
    paths.map((path) =>
      access(path).then(
        () => 1,
        () => 0,
      ),
    ),
  );
  return found.reduce((sum: number, one) => sum + one, 0);
}

/** Counts the mounts of a sandbox in the mount namespaces of all processes. */
async function countMounts(sandboxId: string): Promise<number> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const tables = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/mountinfo`, "utf8").catch(() => "")));
  return tables.flatMap((table) => table.split("\n")).filter((line) => line.includes(sandboxId)).length;
}
