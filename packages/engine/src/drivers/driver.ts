import type { Cgroup } from "@atoll/host";
import type { ContainerId, ContainerRef, DriverName, SandboxLimits } from "@atoll/protocol";
import type { NodesToMake, NodeDirectory } from "../guest/guest-nodes.ts";
import type { FifoPaths } from "../guest/transport.ts";
import type { TimerSlack } from "../idle/timer-slack.ts";
import type { CheckpointLayout, SandboxLayout } from "../store/layout.ts";
import type { Template } from "../templates/template.ts";
import type { DeadlineFile } from "./deadline-file.ts";

export interface LaunchSpec {
  containerId: ContainerId;
  hostname: string;
  /**
   * The directories of the sandbox: those of its layers exist or are made; the run directory for this container is
   * made.
   */
  layout: SandboxLayout;
  template: Template;
  limits: SandboxLimits;
  /** Without a source the sandbox begins with its template alone. */
  from?: LaunchSource;
}

/** The files, and perhaps the memory, that a sandbox starts from. */
export interface LaunchSource {
  /** Per tree of the template, the directories between it and what the sandbox writes, the topmost first. */
  frozen: string[][];
  /** The layer of the guest that is in the image; the newest one if absent. */
  guestLayer?: string;
  /** How the system calls of the image are intercepted; the driver chooses if absent. */
  platform?: string;
  /** Processes continue from this memory image; without it they are started again. */
  memoryDir?: string;
  /** The guest makes these pipes and sockets before anything else runs. */
  nodes?: Promise<NodesToMake[]>;
}

export interface DriverLaunchOptions {
  signal: AbortSignal;
  /** Nothing runs in the container before this has resolved, because the intent to start it is being stored. */
  mayStart?: Promise<void>;
  /**
   * Returns the container's deadline, which is in force from the first moment, with the value of that moment. The
   * launch rejects with `start_failed` if it has passed.
   */
  allowedUntil?: () => number | undefined;
}

/** How a container ended. `exitCode` and `signal` are the runtime's, not those of any user process. */
export interface ContainerExit {
  exitCode: number | null;
  signal: string | null;
  outOfMemory: boolean;
  /** The last output of the runtime. */
  stderr: string;
}

/** One launch of a sandbox. */
export interface Container {
  readonly ref: ContainerRef;
  readonly fifos: FifoPaths;
  readonly cgroup: Cgroup;
  readonly deadline: DeadlineFile;
  /**
   * Returns how the container ended. Call it when the container has ended, or is about to: it waits for the runtime's
   * parent to write the exit status. Call it before `remove`, which removes that file.
   */
  findExit(): Promise<ContainerExit>;
  /**
   * Settles when the runtime's parent, started by this server, is gone. Never settles for an adopted container, whose
   * channel reports the end.
   */
  readonly launcherGone: Promise<void>;
}

/** The contents of a frozen container. */
export interface FrozenContents {
  /**
   * Files, by their paths inside, that cannot be saved in an image. With any of them `save` would end the container.
   */
  unsaveable: Buffer[];
  /** The size of all memory: the image is not much larger than this. */
  memoryBytes: number;
}

/** Saves running containers. Like its driver it keeps nothing in memory about them. */
export interface Freezer {
  readonly version: string;
  /** The platforms of this machine, of those that an image may need. */
  readonly platforms: readonly string[];
  /** The needs of a container that begins without an image. */
  readonly fresh: ImageNeeds;
  /** Stops every process where it is. */
  freeze(ref: ContainerRef, layout: SandboxLayout): Promise<void>;
  /**
   * Does nothing to a container that is not frozen. Must not be called after `save`: the container would wake up only
   * to die.
   */
  thaw(ref: ContainerRef, layout: SandboxLayout): Promise<void>;
  inspect(ref: ContainerRef, layout: SandboxLayout): Promise<FrozenContents>;
  /** Returns a saver for a container that will be frozen. */
  saver(ref: ContainerRef, layout: SandboxLayout, target: CheckpointLayout): Saver;
  /**
   * Says whether a `save` for this target was ever completed, and how. Waits for one that an earlier server has begun.
   */
  findOutcome(ref: ContainerRef, target: CheckpointLayout): Promise<"saved" | "failed" | "not begun">;
  findNeeds(ref: ContainerRef, layout: SandboxLayout): Promise<ImageNeeds>;
}

/** A saver that is disposed of without `save` has changed nothing. */
export interface Saver extends AsyncDisposable {
  /** Does what can be done in advance, which blocks this process for a moment. */
  getReady(): void;
  /**
   * Writes the image of the container, which must be frozen, and must be removed after this, whether or not it
   * succeeds. The image must not exist yet.
   */
  save(): Promise<void>;
}

/** What the image of a container's memory needs to be restored. */
export interface ImageNeeds {
  /** The name of the guest's layer that the container was started with. */
  guest: string;
  /** The platform is part of the image: systrap writes code into the programs that it runs. */
  platform: string;
}

/**
 * How containers are run. A driver keeps nothing in memory about its containers: all that it needs to find, adopt or
 * remove one is on the host and in the arguments, so that the next server can do it as well.
 */
export interface Driver {
  readonly name: DriverName;
  /** Without a freezer, the driver's containers cannot be saved. */
  readonly freezer?: Freezer;
  /**
   * Starts a container up to the point where its FIFOs can be opened; only the guest's answer shows whether it runs.
   * Rejects with `start_failed`, naming the phase, and leaves nothing behind.
   */
  launch(spec: LaunchSpec, options: DriverLaunchOptions): Promise<Container>;
  /** Returns the container of a dead server, or undefined if it does not run any more. */
  adopt(ref: ContainerRef, layout: SandboxLayout): Promise<Container | undefined>;
  /**
   * Returns directories inside, without the leading `/`, among them every one with a pipe or a socket that exists only
   * in the container's memory. A driver without this method keeps all files on disk, and pipes and sockets that are
   * found there can be used.
   */
  findDirectories?(ref: ContainerRef, layout: SandboxLayout): Promise<NodeDirectory[]>;
  /** Stops every process of a container where it is. */
  freeze(ref: ContainerRef, layout: SandboxLayout): Promise<void>;
  /** Does nothing to a container that is not frozen. */
  thaw(ref: ContainerRef, layout: SandboxLayout): Promise<void>;
  /**
   * Returns the timer slack of a running container. A driver without this method, or a result of undefined, means that
   * the container costs nothing while it is idle.
   */
  findTimerSlack?(container: Pick<Container, "ref" | "cgroup">, layout: SandboxLayout): Promise<TimerSlack | undefined>;
  /** Begins to end the container and does not wait for that, which `remove` does. */
  end(id: ContainerId): Promise<void>;
  /** Removes processes, mounts, cgroup and run directory completely, in whatever state they are. Idempotent. */
  remove(id: ContainerId, layout: SandboxLayout): Promise<void>;
}
