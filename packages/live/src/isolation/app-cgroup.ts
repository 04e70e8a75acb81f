import { detectCgroups, messageOf, type Cgroup } from "@atoll/host";
import type { AppLimits } from "./app-host.ts";
import { groupNamespace, removeLeftovers } from "./leftovers.ts";

/** Joins the groups of its first arguments, up to `--`, and becomes the program after it. */
const join = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 126; shift; done; shift; exec "$@"';

/** What the machine can limit a process by, from outside of it. */
export async function cgroupEnforcement(): Promise<string[]> {
  const tree = await detectCgroups().catch(() => undefined);
  if (tree === undefined) return ["memory of the JavaScript heap by Node: this machine has no cgroups for us"];
  return [`memory, CPU and processes by cgroup v${tree.version}`];
}

let missing: Promise<string[]> | undefined;

/** What is missing for limits by cgroup. Making a group shows whether this user may. */
export function missingCgroups(): Promise<string[]> {
  missing ??= (async () => {
    const limits = { memoryBytes: 16 * 1024 * 1024, processes: 1, cpus: 0.1, fileBytes: 1024 };
    const group = await createAppCgroup("probe", limits);
    await group?.remove();
    return group === undefined ? ["cgroups that this user may make (run as root, or delegate them)"] : [];
  })();
  return missing;
}

/** A cgroup for an app, or `undefined` where this user or machine has none. */
export async function createAppCgroup(id: string, limits: AppLimits): Promise<AppCgroup | undefined> {
  const tree = await detectCgroups().catch(() => undefined);
  if (tree === undefined) return undefined;
  await removeLeftovers(tree);
  try {
    const { memoryBytes, cpus, processes } = limits;
    // Node alone has about a dozen threads, which count as processes here.
    return new AppCgroup(
      await tree.create(`${groupNamespace(process.pid)}/${id}`, { memoryBytes, cpus, pidsMax: processes + 16 }),
    );
  } catch (error) {
    if (/EACCES|EPERM|EROFS/.test(messageOf(error))) return undefined;
    throw error;
  }
}

export class AppCgroup {
  readonly #group: Cgroup;

  constructor(group: Cgroup) {
    this.#group = group;
  }

  /** A command line that runs in the group from its first instruction on. */
  wrap(command: readonly string[]): [file: string, ...args: string[]] {
    return ["/bin/sh", "-c", join, "atoll-live", ...this.#group.directories, "--", ...command];
  }

  async usage(): Promise<{ cpuMs: number | undefined; processes: number }> {
    const [cpuMs, pids] = await Promise.all([this.#group.cpuMs(), this.#group.pids()]);
    return { cpuMs, processes: pids.length };
  }

  setCpus(cpus: number): Promise<void> {
    return this.#group.setLimits({ cpus });
  }

  pids(): Promise<number[]> {
    return this.#group.pids();
  }

  async wasOutOfMemory(): Promise<boolean> {
    return (await this.#group.oomKills()) > 0;
  }

  /** Ends every process of the group and removes it. */
  async remove(): Promise<void> {
    await this.#group.killAll({ deadlineMs: 10_000 });
    await this.#group.remove();
  }
}
