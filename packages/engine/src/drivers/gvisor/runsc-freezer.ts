import { readlinkSync, statSync } from "node:fs";
import { readdir, readFile, readlink, stat } from "node:fs/promises";
import { setImmediate } from "node:timers/promises";
import { hasErrno, pollUntil, run } from "@atoll/host";
import { deadlineAfter, SandboxError, type ContainerRef } from "@atoll/protocol";
import { z } from "zod";
import type { NodeDirectory } from "../../guest/guest-nodes.ts";
import type { CheckpointLayout, SandboxLayout } from "../../store/layout.ts";
import type { Freezer, FrozenContents, ImageNeeds, Saver } from "../driver.ts";
import { guestAnnotation, platformAnnotation } from "./oci-spec.ts";
import { RunscControl, saveRequest } from "./runsc-control.ts";
import { RunscSaver, saveTimeoutMs } from "./runsc-saver.ts";
import { readState } from "./runsc-state.ts";

const commandTimeoutMs = 30_000;
/** The kernel adds this to the path of a file that has no name any more. */
const deletedMark = " (deleted)";
/** runsc mounts the sandbox's root here for its own process. */
const rootInside = "/root";

/** This file contains the memory of all processes inside. */
const memoryFile = "/memfd:runsc-memory";
/** The size of the blocks that `stat` counts. */
const blockBytes = 512;

/**
 * A sandbox can have as many directories open as it likes, each with a path of 4 KiB. The engine would have all of them
 * in memory, and send them to the guest.
 */
const mostPlaces = 65_536;
const mostPlacesBytes = 8 * 1024 * 1024;

const SpecFile = z.object({
  annotations: z.object({ [guestAnnotation]: z.string(), [platformAnnotation]: z.string() }),
});

/**
 * Freezes and saves containers through runsc's socket where this version of runsc is known, and otherwise with runsc's
 * own commands, which find the container by its state directory.
 */
export class RunscFreezer implements Freezer {
  readonly version: string;
  readonly platforms: readonly string[];
  readonly fresh: ImageNeeds;
  #runscPath: string;
  #guestPath: string;
  #saveRequest: string | undefined;

  constructor(options: {
    runscPath: string;
    runscVersion: string;
    platforms: readonly string[];
    fresh: ImageNeeds;
    guestPath: string;
  }) {
    this.#runscPath = options.runscPath;
    this.#guestPath = options.guestPath;
    this.#saveRequest = saveRequest(options.runscVersion);
    this.version = options.runscVersion;
    this.platforms = options.platforms;
    this.fresh = options.fresh;
  }

  async freeze(ref: ContainerRef, layout: SandboxLayout): Promise<void> {
    if (await this.#control(ref, layout).freeze()) return;
    const { exitCode, stderr } = await this.#runsc(ref, layout, "pause");
    if (exitCode !== 0) throw commandFailed("freeze", ref, stderr);
  }

  async thaw(ref: ContainerRef, layout: SandboxLayout): Promise<void> {
    const { status } = await readState(ref, layout);
    if (status !== "paused") return this.#control(ref, layout).thaw();
    const { exitCode, stderr } = await this.#runsc(ref, layout, "resume");
    if (exitCode !== 0) throw commandFailed("wake", ref, stderr);
  }

  async inspect(ref: ContainerRef, layout: SandboxLayout): Promise<FrozenContents> {
    const files = await openFiles(ref, layout);
    const { rootfs } = layout.run(ref.id);
    const [unsaveable, memoryBytes] = await Promise.all([findUnsaveable(ref, rootfs, files), measureMemory(files)]);
    return { unsaveable, memoryBytes };
  }

  /**
   * gVisor keeps a directory open for as long as it has a pipe or a socket in it that exists only in memory. When it
   * made that it stored the time of the change, which the host has not seen: so where both know the same time there is
   * none. Rejects with `limit_reached` if there are too many directories.
   */
  async findDirectories(ref: ContainerRef, layout: SandboxLayout): Promise<NodeDirectory[]> {
    const { sandbox } = await readState(ref, layout);
    const fdDir = `/proc/${sandbox.pid}/fd`;
    const found = new Map<string, NodeDirectory>();
    let bytes = 0;
    for (const [index, fd] of (await readdir(fdDir)).entries()) {
      // A sandbox may have any number of them, and other requests wait.
      if (index % 256 === 255) await setImmediate();
      const place = placeOf(`${fdDir}/${fd}`);
      if (place === undefined) continue;
      found.set(place.path.toString("latin1"), place);
      bytes += place.path.byteLength;
      if (found.size > mostPlaces || bytes > mostPlacesBytes) throw tooMany(found.size);
    }
    return [...found.values()];
  }

  saver(ref: ContainerRef, layout: SandboxLayout, target: CheckpointLayout): Saver {
    return new RunscSaver({
      guestPath: this.#guestPath,
      socketPath: this.#control(ref, layout).socketPath,
      request: this.#saveRequest,
      command: (words) => this.#command(ref, layout, words),
      target,
      fail: (stderr) => commandFailed("save", ref, stderr),
    });
  }

  async findOutcome(_: ContainerRef, target: CheckpointLayout): Promise<"saved" | "failed" | "not begun"> {
    await pollUntil(async () => !(await isBeingWritten(target.memoryDir)), { deadlineMs: saveTimeoutMs });
    const outcome = await readFile(target.outcomeFile, "utf8").catch(gone);
    if (outcome !== undefined) return outcome.trim() === "0" ? "saved" : "failed";
    const files = (await readdir(target.memoryDir).catch(gone)) ?? [];
    return files.length > 0 ? "failed" : "not begun";
  }

  async findNeeds(ref: ContainerRef, layout: SandboxLayout): Promise<ImageNeeds> {
    const { annotations } = SpecFile.parse(JSON.parse(await readFile(layout.run(ref.id).specFile, "utf8")));
    return { guest: annotations[guestAnnotation], platform: annotations[platformAnnotation] };
  }

  #control(ref: ContainerRef, layout: SandboxLayout): RunscControl {
    return new RunscControl(layout.run(ref.id).runtimeState, ref.id);
  }

  #command(ref: ContainerRef, layout: SandboxLayout, words: readonly string[]): string[] {
    return [this.#runscPath, "--root", layout.run(ref.id).runtimeState, ...words, ref.id];
  }

  async #runsc(ref: ContainerRef, layout: SandboxLayout, word: string): ReturnType<typeof run> {
    const [file = "", ...args] = this.#command(ref, layout, [word]);
    return run(file, args, { signal: deadlineAfter(commandTimeoutMs), timeoutMs: commandTimeoutMs });
  }
}

interface OpenFile {
  fd: string;
  /**
   * The bytes of the path as `latin1`, because a name inside need not be text. Undefined if it is longer than the 4 KiB
   * that the kernel returns.
   */
  path: string | undefined;
}

/** Error messages show this for such a path. */
const longPath = "(a path of more than 4096 bytes)";

/** Returns the files that the sandbox's process has open, and their paths as the kernel reports them. */
async function openFiles(ref: ContainerRef, layout: SandboxLayout): Promise<OpenFile[]> {
  const { sandbox } = await readState(ref, layout);
  const fdDir = `/proc/${sandbox.pid}/fd`;
  const fds = (await readdir(fdDir)).map((name) => `${fdDir}/${name}`);
  const files = await Promise.all(
    fds.map(async (fd): Promise<OpenFile | undefined> => {
      try {
        return { fd, path: await readlink(fd, "latin1") };
      } catch (error) {
        return hasErrno(error, "ENAMETOOLONG") ? { fd, path: undefined } : gone(error);
      }
    }),
  );
  return files.filter((file) => file !== undefined);
}

/**
 * Returns undefined for a file that is no directory of the root. Synchronous, because there may be thousands, and a
 * promise for each would take longer than the calls.
 */
function placeOf(fd: string): NodeDirectory | undefined {
  try {
    const path = readlinkSync(fd, { encoding: "buffer" });
    if (!`${path.toString("latin1")}/`.startsWith(`${rootInside}/`)) return undefined;
    const stats = statSync(fd, { bigint: true });
    if (!stats.isDirectory()) return undefined;
    return { path: path.subarray(rootInside.length + 1), emptyAtNs: stats.ctimeNs };
  } catch (error) {
    // The kernel returns no path of more than 4 KiB.
    if (hasErrno(error, "ENAMETOOLONG")) return undefined;
    return gone(error);
  }
}

async function findUnsaveable(ref: ContainerRef, rootfs: string, files: readonly OpenFile[]): Promise<Buffer[]> {
  const found = new Set<string>();
  for (const { fd, path } of files) {
    if (path === undefined) {
      if (await mayBeDeleted(fd)) found.add(longPath);
      continue;
    }
    if (!path.endsWith(deletedMark) || !path.startsWith(`${rootInside}/`)) continue;
    // The launcher has the sandbox's root mounted where we gave it.
    const root = Buffer.from(`/proc/${ref.pid}/root${rootfs}`);
    const named = Buffer.concat([root, Buffer.from(path.slice(rootInside.length), "latin1")]);
    if (await isNameOf(named, fd)) continue;
    found.add(path.slice(rootInside.length, -deletedMark.length));
  }
  return [...found].toSorted().map((path) => Buffer.from(path, "latin1"));
}

/**
 * Decides by the number of names alone: if a file has several, the deleted one may be the one by which it was opened.
 */
async function mayBeDeleted(fd: string): Promise<boolean> {
  const file = await stat(fd).catch(gone);
  if (file === undefined) return false;
  return file.isDirectory() ? file.nlink === 0 : file.nlink !== 1;
}

async function measureMemory(files: readonly OpenFile[]): Promise<number> {
  const sizes = new Map<number, number>();
  for (const { fd, path } of files) {
    const file = path?.startsWith(memoryFile) === true ? await stat(fd).catch(gone) : undefined;
    if (file !== undefined) sizes.set(file.ino, file.blocks * blockBytes);
  }
  return [...sizes.values()].reduce((sum, size) => sum + size, 0);
}

/** Says whether the file really has this name, since a name can end like the kernel's mark. */
async function isNameOf(path: Buffer, fd: string): Promise<boolean> {
  const [named, open] = await Promise.all([stat(path).catch(gone), stat(fd).catch(gone)]);
  return named !== undefined && open !== undefined && named.ino === open.ino && named.dev === open.dev;
}

/**
 * Looks for the program that writes the image: it has the image's directory among its arguments, whichever process
 * started it.
 */
async function isBeingWritten(memoryDir: string): Promise<boolean> {
  for (const pid of await readdir("/proc")) {
    if (!/^\d+$/.test(pid)) continue;
    const words = (await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")).split("\0");
    if (words.includes(memoryDir) && words.includes("checkpoint")) return true;
  }
  return false;
}

function gone(error: unknown): undefined {
  if (hasErrno(error, "ENOENT", "ESRCH", "ENOTDIR", "EACCES")) return undefined;
  throw error;
}

function tooMany(directories: number): SandboxError {
  return new SandboxError("limit_reached", "Cannot look for pipes and sockets: too many directories are open", {
    suggestion: "End the processes that have them open.",
    details: { directories },
  });
}

function commandFailed(what: string, ref: ContainerRef, stderr: string): SandboxError {
  const said = stderr.trim().slice(-2_000);
  return new SandboxError("internal", `Cannot ${what} container ${ref.id}: ${said}`, {
    details: { containerId: ref.id, stderr: said },
  });
}
