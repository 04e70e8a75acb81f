import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { detectCgroups, hasErrno, type CgroupTree } from "@atoll/host";
import type { leftoverKinds, SandboxRecord } from "@atoll/protocol";
import type { EngineContext } from "../engine-context.ts";
import { DataLayout } from "../store/layout.ts";
import { SandboxStore } from "../store/sandbox-store.ts";
import { findStrayGroups, findStrayLaunchers, findStrayMounts } from "./strays.ts";

/** Something that a sandbox left on the host. */
export interface Leftover {
  kind: (typeof leftoverKinds)[number];
  what: string;
}

/** The names of what is in use. */
interface Living {
  sandboxes: ReadonlySet<string>;
  containers: ReadonlySet<string>;
}

/**
 * Returns what belongs to no sandbox of the engine. A sandbox that is just beginning or ending may be among it: what is
 * still there some time later is left.
 */
export async function findLeftovers({ cgroups, layout, lives, importing }: EngineContext): Promise<Leftover[]> {
  // What is in use is asked afterwards: a sandbox that began during the search is in use.
  return search(layout, cgroups, async () => ({
    sandboxes: new Set([...lives.keys(), ...importing]),
    containers: new Set(
      [...lives.values()].flatMap((life) => [...containersOf(life.record), life.containerId ?? []].flat()),
    ),
  }));
}

/** Returns the same for a data directory whose engine, if there is one, is another process: from what it has stored. */
export async function findLeftoversIn(dataDir: string): Promise<Leftover[]> {
  const layout = new DataLayout(dataDir);
  const cgroups = await detectCgroups();
  // Looking must not make the directory.
  if (cgroups === undefined || (await namesIn(layout.sandboxesDir)).length === 0) return [];
  return search(layout, cgroups, async () => {
    const { records } = await new SandboxStore(layout).load();
    const containers = new Set(records.flatMap(containersOf));
    for (const { id, state } of records) {
      // The record of a sandbox that is being killed does not have its container any more.
      if (state === "killing") for (const name of await namesIn(layout.sandbox(id).runsDir)) containers.add(name);
    }
    return { sandboxes: new Set(records.map(({ id }) => id)), containers };
  });
}

async function search(layout: DataLayout, cgroups: CgroupTree, ask: () => Promise<Living>): Promise<Leftover[]> {
  const nothing = new Set<string>();
  const [groups, launchers, mounts, directories] = await Promise.all([
    findStrayGroups(cgroups, layout, nothing),
    findStrayLaunchers(layout, nothing),
    findStrayMounts(layout),
    directoriesOf(layout),
  ]);
  const { sandboxes, containers } = await ask();
  const isLeft = ({ of }: { of?: string }): boolean => of === undefined || !(sandboxes.has(of) || containers.has(of));
  return [
    ...groups.filter(isLeft).map(({ what }) => ({ kind: "cgroup" as const, what })),
    ...launchers.filter(isLeft).map(({ what }) => ({ kind: "process" as const, what })),
    ...mounts.map(({ what }) => ({ kind: "mount" as const, what })),
    ...directories.filter(isLeft).map(({ what }) => ({ kind: "directory" as const, what })),
  ];
}

/** Returns the directories of sandboxes, and in those the directories of containers, which have sockets and FIFOs. */
async function directoriesOf({ sandboxesDir }: DataLayout): Promise<{ what: string; of: string }[]> {
  const names = await namesIn(sandboxesDir);
  const found = await Promise.all(
    names.map(async (name) => {
      const dir = join(sandboxesDir, name);
      const runs = await namesIn(join(dir, "run"));
      return [
        { what: `directory ${dir}`, of: name },
        ...runs.map((run) => ({ what: `directory ${join(dir, "run", run)}`, of: run })),
      ];
    }),
  );
  return found.flat();
}

function containersOf(record: SandboxRecord): string[] {
  if ("container" in record) return [record.container.id];
  return "containerId" in record ? [record.containerId] : [];
}

async function namesIn(directory: string): Promise<string[]> {
  try {
    return await readdir(directory);
  } catch (error) {
    if (hasErrno(error, "ENOENT", "ENOTDIR")) return [];
    throw error;
  }
}
