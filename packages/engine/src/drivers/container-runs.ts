import { existsSync } from "node:fs";
import { chmod, chown, mkdir, readdir, readFile, rm, stat, utimes } from "node:fs/promises";
import { join } from "node:path";
import { type Cgroup, type CgroupTree, Cleanup, hasErrno, isAlive, pollUntil } from "@atoll/host";
import { SandboxError, type ContainerId, type ContainerRef } from "@atoll/protocol";
import type { RunLayout, SandboxLayout } from "../store/layout.ts";
import { DeadlineFile } from "./deadline-file.ts";
import type { Container, ContainerExit, DriverLaunchOptions, LaunchSource, LaunchSpec } from "./driver.ts";
import { launch, type LauncherCommand } from "./launcher.ts";

/** How long the kernel may take to remove killed processes. */
const killDeadlineMs = 20_000;
/** How long the launcher may take to write the exit status after the runtime's end. */
const exitFileDeadlineMs = 5_000;
const stderrTailBytes = 4096;
const overlayFeatures = ["redirect_dir=off", "index=off", "metacopy=off"];

export interface ContainerRunsOptions {
  guestPath: string;
  /** A directory with the guest at the path where sandboxes expect it; the top read-only layer of every root. */
  guestLayer: string;
  cgroups: CgroupTree;
  /** The namespace of the data directory; see `DataLayout`. */
  namespace: string;
}

/** The program to launch, and the function that writes the files for it into the run directory. */
export interface RunPlan extends Pick<LauncherCommand, "program" | "enter" | "batch" | "noAttributes"> {
  prepare?: () => Promise<void>;
}

/**
 * What all drivers share: run directories, cgroups, overlay mounts and the launcher. Drivers differ only in the program
 * that they launch.
 */
export class ContainerRuns {
  #options: ContainerRunsOptions;
  /** The namespaces of containers that were started when the data directory had another path. */
  #namespaces = new Map<ContainerId, string>();

  constructor(options: ContainerRunsOptions) {
    this.#options = options;
  }

  async launch(
    spec: LaunchSpec,
    plan: (run: RunLayout) => RunPlan,
    options: DriverLaunchOptions & { pidsMax?: number },
  ): Promise<Container> {
    const run = spec.layout.run(spec.containerId);
    // The error is thrown below, where `mayStart` is awaited; this keeps it from being an unhandled rejection until
    // then.
    options.mayStart?.catch(() => undefined);
    await using undo = new Cleanup();
    undo.defer(() => this.remove(spec.containerId, spec.layout));
    const [cgroup] = await Promise.all([
      this.#options.cgroups.create(this.#cgroupName(spec.containerId), {
        memoryBytes: spec.limits.memoryBytes,
        cpus: spec.limits.cpus,
        ...(options.pidsMax === undefined ? {} : { pidsMax: options.pidsMax }),
      }),
      this.#makeRun(run, options),
    ]);
    options.signal.throwIfAborted();
    const { prepare, ...planned } = plan(run);
    const preparing = [this.#makeDirectories(spec, run), Promise.resolve(prepare?.()), this.#permit(run, options)];
    undo.defer(() => Promise.allSettled(preparing));
    const { ref, gone } = await launch(
      {
        guestPath: this.#options.guestPath,
        runDir: run.dir,
        cgroups: cgroup.directories,
        freezer: cgroup.freezer,
        overlays: this.#overlays(spec, run),
        ...planned,
      },
      { signal: options.signal, ready: Promise.all(preparing) },
    );
    undo.release();
    return this.#container({ id: spec.containerId, ...ref }, run, cgroup, gone);
  }

  async adopt(ref: ContainerRef, layout: SandboxLayout): Promise<Container | undefined> {
    if (!(await isAlive(ref)) || !(await isLaunchedIn(layout.run(ref.id), ref.pid))) return undefined;
    const namespace = await namespaceOf(ref);
    if (namespace !== undefined) this.#namespaces.set(ref.id, namespace);
    const cgroup = await this.#options.cgroups.open(this.#cgroupName(ref.id));
    return this.#container(ref, layout.run(ref.id), cgroup, new Promise<void>(() => undefined));
  }

  async end(id: ContainerId): Promise<void> {
    await (await this.#options.cgroups.open(this.#cgroupName(id))).kill();
  }

  async remove(id: ContainerId, layout: SandboxLayout): Promise<void> {
    const run = layout.run(id);
    const cgroup = await this.#options.cgroups.open(this.#cgroupName(id));
    await cgroup.killAll({ deadlineMs: killDeadlineMs });
    await cgroup.remove();
    await rm(run.dir, { recursive: true, force: true });
    this.#namespaces.delete(id);
  }

  /** Freezes with the host's cgroup, for processes of the host's kernel. */
  async freeze(id: ContainerId): Promise<void> {
    await (await this.#options.cgroups.open(this.#cgroupName(id))).freeze();
  }

  async thaw(id: ContainerId): Promise<void> {
    await (await this.#options.cgroups.open(this.#cgroupName(id))).thaw();
  }

  #container(ref: ContainerRef, run: RunLayout, cgroup: Cgroup, launcherGone: Promise<void>): Container {
    const deadline = new DeadlineFile(run);
    return { ref, cgroup, launcherGone, deadline, fifos: run.fifos, findExit: () => findExit(run, cgroup) };
  }

  async #makeRun(run: RunLayout, { allowedUntil }: DriverLaunchOptions): Promise<void> {
    await mkdir(run.dir, { recursive: true });
    const untilMs = allowedUntil?.();
    if (untilMs !== undefined) await new DeadlineFile(run).prepare(untilMs);
  }

  /** The deadline may have changed while the launcher waited for `mayStart`, so it is written again. */
  async #permit(run: RunLayout, { mayStart, allowedUntil }: DriverLaunchOptions): Promise<void> {
    if (mayStart === undefined) return;
    await mayStart;
    const untilMs = allowedUntil?.();
    if (untilMs !== undefined) await new DeadlineFile(run).replace(untilMs);
  }

  async #makeDirectories({ layout, template, from }: LaunchSpec, run: RunLayout): Promise<void> {
    const make = (dir: string): Promise<string | undefined> => mkdir(dir, { recursive: true });
    await Promise.all([
      make(run.rootfs),
      make(run.runtimeState),
      ...template.trees.map(async (_, index) => {
        const { upper, work } = layout.layer(index);
        await make(work);
        const isNew = (await make(upper)) !== undefined;
        const below = from?.frozen[index]?.[0];
        if (isNew && below !== undefined) await copyAttributes(below, upper);
      }),
    ]);
  }

  /** Returns the layer with the guest for a root that is started from `from`. */
  guestLayer(from: LaunchSource | undefined): string {
    return from?.guestLayer ?? this.#options.guestLayer;
  }

  #overlays({ layout, template, from }: LaunchSpec, run: RunLayout): LauncherCommand["overlays"] {
    return template.trees.map(({ at, lower }, index) => {
      const { upper, work } = layout.layer(index);
      const own = index === 0 ? [this.guestLayer(from), ...lower] : lower;
      const layers = [...(from?.frozen[index] ?? []), ...own];
      return {
        target: at === "/" ? run.rootfs : `${run.rootfs}${at}`,
        options: [`lowerdir=${layers.join(":")}`, `upperdir=${upper}`, `workdir=${work}`, ...overlayFeatures].join(","),
      };
    });
  }

  #cgroupName(id: ContainerId): string {
    return `${this.#namespaces.get(id) ?? this.#options.namespace}/${id}`;
  }
}

/**
 * Says whether this launcher belongs to this very directory: it has the file of its deadline open for as long as it
 * lives. A copy of the data directory has the same ids, but their containers run in the original.
 */
async function isLaunchedIn(run: RunLayout, pid: number): Promise<boolean> {
  const file = await identify(run.deadlineFile);
  // The container was started by a server that knew of no deadlines.
  if (file === undefined) return true;
  const directory = `/proc/${pid}/fd`;
  const names = await readdir(directory).catch((error: unknown) => {
    if (hasErrno(error, "ENOENT", "ESRCH")) return [];
    throw error;
  });
  const open = await Promise.all(names.map((name) => identify(join(directory, name))));
  return open.includes(file);
}

/**
 * Returns the namespace of the container's launcher, by its cgroup. Returns undefined if it cannot be seen from here.
 */
async function namespaceOf({ id, pid }: ContainerRef): Promise<string | undefined> {
  const groups = await readFile(`/proc/${pid}/cgroup`, "utf8").catch(() => "");
  return new RegExp(`/([^/\\n]+)/${id}(?:/|$)`, "m").exec(groups)?.[1];
}

/** Returns undefined if the file does not exist. */
async function identify(path: string): Promise<string | undefined> {
  try {
    const { dev, ino } = await stat(path, { bigint: true });
    return `${dev} ${ino}`;
  } catch (error) {
    if (hasErrno(error, "ENOENT", "ESRCH")) return undefined;
    throw error;
  }
}

/** The root of a tree takes its attributes from the topmost layer, also if that has no file in it. */
async function copyAttributes(from: string, to: string): Promise<void> {
  const { uid, gid, mode, atimeMs, mtimeMs } = await stat(from);
  await chown(to, uid, gid);
  await chmod(to, mode);
  await utimes(to, atimeMs / 1000, mtimeMs / 1000);
}

async function findExit(run: RunLayout, cgroup: Cgroup): Promise<ContainerExit> {
  let line = "";
  await pollUntil(
    async () => {
      line = await readFile(run.exitFile, "utf8").catch((error: unknown) => {
        if (hasErrno(error, "ENOENT")) return "";
        throw error;
      });
      // The exit status of a container that was removed will never appear.
      return line !== "" || !existsSync(run.dir);
    },
    { deadlineMs: exitFileDeadlineMs },
  );
  const [kind, number] = line.trim().split(" ");
  const stderr = await readFile(run.stderrFile, "utf8").catch(() => "");
  return {
    exitCode: kind === "exit" ? Number(number) : null,
    signal: kind === "signal" ? `signal ${number}` : null,
    outOfMemory: (await cgroup.oomKills()) > 0,
    stderr: stderr.slice(-stderrTailBytes),
  };
}

/** Returns the error of a container that ended before its guest answered. */
export function startFailed(exit: ContainerExit, phase: string): SandboxError {
  const how = exit.outOfMemory
    ? "it ran out of memory"
    : (exit.signal ?? (exit.exitCode === null ? "it is gone" : `exit code ${exit.exitCode}`));
  return new SandboxError("start_failed", `Cannot start the container: ${how} while waiting for ${phase}`, {
    suggestion: exit.outOfMemory ? "Raise limits.memoryBytes." : "details.stderr has the runtime's output.",
    details: {
      phase,
      exitCode: exit.exitCode,
      signal: exit.signal,
      outOfMemory: exit.outOfMemory,
      stderr: exit.stderr,
    },
  });
}
