import type { ContainerId, ContainerRef, DriverName, SandboxLimits } from "@atoll/protocol";
import type { NodesOrder, NodesPlace } from "../guest/guest-nodes.ts";
import type { FifoPaths } from "../guest/transport.ts";
import type { TimerSlack } from "../idle/timer-slack.ts";
import type { Cgroup } from "../limits/cgroup.ts";
import type { CheckpointLayout, SandboxLayout } from "../store/layout.ts";
import type { Template } from "../templates/template.ts";
import type { DeadlineFile } from "./deadline-file.ts";

export interface LaunchSpec {
  containerId: ContainerId;
  hostname: string;
  /** Its layers exist or are made; its run directory for this container is made. */
  layout: SandboxLayout;
  template: Template;
  limits: SandboxLimits;
  /** Without it the sandbox begins with its template alone. */
  from?: LaunchSource;
}

/** What a sandbox goes on from. */
export interface LaunchSource {
  /** Per tree of the template, the directories that lie between it and what the sandbox writes, the topmost first. */
  frozen: string[][];
  /** The guest that is in the image; the newest one if absent. */
  guestLayer?: string;
  /** How the image's system calls are caught; as the driver likes if absent. */
  platform?: string;
  /** Processes go on from this memory image; without it they are started afresh. */
  memoryDir?: string;
  /** Made by the guest before anything else runs. */
  nodes?: Promise<NodesOrder[]>;
}

export interface DriverLaunchOptions {
  signal: AbortSignal;
  /** Nothing runs in the container before this has resolved: the intent to start it is being stored. */
  mayStart?: Promise<void>;
  /**
   * The container's deadline, in force from its first moment and as it is then. Rejects with `start_failed` if it has
   * passed.
   */
  allowedUntil?: () => number | undefined;
}

/** How a container came to its end. `exitCode` and `signal` are the runtime's, not those of any user process. */
export interface ContainerExit {
  exitCode: number | null;
  signal: string | null;
  outOfMemory: boolean;
  /** The last of what the runtime said. */
  stderr: string;
}

/** One launch of a sandbox. */
export interface Container {
  readonly ref: ContainerRef;
  readonly fifos: FifoPaths;
  readonly cgroup: Cgroup;
  readonly deadline: DeadlineFile;
  /**
   * How it ended; asked when it has, or is about to: waits for the runtime's parent to write down the exit status.
   * Before `remove`, which takes the evidence along.
   */
  findExit(): Promise<ContainerExit>;
  /**
   * Settles when the runtime's parent, started by this server, is gone. Never for an adopted container: its channel
   * tells.
   */
  readonly launcherGone: Promise<void>;
}

/** What a frozen container has. */
export interface FrozenContents {
  /** Files, as seen inside, that have no place in an image. With any of them `save` would end the container. */
  unsaveable: Buffer[];
  /** Of all of its memory: its image is not larger than this and a little. */
  memoryBytes: number;
}

/** Saves running containers. Like its driver it keeps nothing in memory about them. */
export interface Freezer {
  readonly version: string;
  /** Of the platforms that an image may need, those that are here. */
  readonly platforms: readonly string[];
  /** Of a container that begins without an image. */
  readonly fresh: ImageNeeds;
  /** Stops every process where it is. */
  freeze(ref: ContainerRef, layout: SandboxLayout): Promise<void>;
  /** Not after `save`: it would wake up only to die. Does nothing to a container that is not frozen. */
  thaw(ref: ContainerRef, layout: SandboxLayout): Promise<void>;
  inspect(ref: ContainerRef, layout: SandboxLayout): Promise<FrozenContents>;
  /** For a container that will be frozen. */
  saver(ref: ContainerRef, layout: SandboxLayout, target: CheckpointLayout): Saver;
  /**
   * Whether a `save` has ever run to its end for this target, and how. Waits for one that a server before this one has
   * begun.
   */
  findOutcome(ref: ContainerRef, target: CheckpointLayout): Promise<"saved" | "failed" | "not begun">;
  findNeeds(ref: ContainerRef, layout: SandboxLayout): Promise<ImageNeeds>;
}

/** Whoever does not save disposes of it, and nothing has happened. */
export interface Saver extends AsyncDisposable {
  /** Does what can be done beforehand, which keeps this process busy for a moment. */
  getReady(): void;
  /**
   * Writes the image of the container, which is frozen by now and then has to be removed, whether or not this succeeds.
   * The image must not be there yet.
   */
  save(): Promise<void>;
}

/** What the image of a container's memory can only go on with. */
export interface ImageNeeds {
  /** The name of the guest's layer that the container was started with. */
  guest: string;
  /** systrap writes itself into the programs that it runs. */
  platform: string;
}

/**
 * How containers are run. A driver keeps nothing in memory about its containers: all that it needs to find, adopt or
 * remove one is on the host and in the arguments, so that the next server can do it as well.
 */
export interface Driver {
  readonly name: DriverName;
  /** Undefined: its containers cannot be saved. */
  readonly freezer?: Freezer;
  /**
   * Starts a container up to the point where its FIFOs can be opened; whether the guest comes up is seen there. Rejects
   * with `start_failed`, naming the phase, and leaves nothing behind.
   */
  launch(spec: LaunchSpec, options: DriverLaunchOptions): Promise<Container>;
  /** The container of a dead server, or undefined if it does not run any more. */
  adopt(ref: ContainerRef, layout: SandboxLayout): Promise<Container | undefined>;
  /**
   * Directories inside, without the `/` before them, among them every one with a pipe or a socket that the container
   * has in memory only. Absent: all of its files are on disk, and pipes and sockets that are found there can be used.
   */
  findDirectories?(ref: ContainerRef, layout: SandboxLayout): Promise<NodesPlace[]>;
  /** Stops every process of a container where it is. */
  freeze(ref: ContainerRef, layout: SandboxLayout): Promise<void>;
  /** Does nothing to a container that is not frozen. */
  thaw(ref: ContainerRef, layout: SandboxLayout): Promise<void>;
  /** For a container that runs. Absent, or undefined: it costs nothing while it is idle. */
  findTimerSlack?(container: Pick<Container, "ref" | "cgroup">, layout: SandboxLayout): Promise<TimerSlack | undefined>;
  /** Begins its end and does not wait for it: that is for `remove`. */
  end(id: ContainerId): Promise<void>;
  /**
   * Idempotent and complete: processes, mounts, cgroup and run directory are gone, whatever state they were in, whether
   * or not they were there.
   */
  remove(id: ContainerId, layout: SandboxLayout): Promise<void>;
}
