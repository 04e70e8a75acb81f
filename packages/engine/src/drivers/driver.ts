import type { ContainerId, ContainerRef, DriverName, SandboxLimits } from "@atoll/protocol";
import type { FifoPaths } from "../guest/transport.ts";
import type { Cgroup } from "../limits/cgroup.ts";
import type { SandboxLayout } from "../store/layout.ts";
import type { Template } from "../templates/template.ts";

export interface LaunchSpec {
  containerId: ContainerId;
  hostname: string;
  /** Its layers exist or are made; its run directory for this container is made. */
  layout: SandboxLayout;
  template: Template;
  limits: SandboxLimits;
}

export interface DriverLaunchOptions {
  signal: AbortSignal;
  /** Nothing runs in the container before this has resolved: the intent to start it is being stored. */
  mayStart?: Promise<void>;
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
  /**
   * How it ended; asked when it has, or is about to: waits for the runtime's parent to write down the exit status. Before `remove`, which takes the
   * evidence along.
   */
  findExit(): Promise<ContainerExit>;
  /** Settles when the runtime's parent, started by this server, is gone. Never for an adopted container: its channel tells. */
  readonly launcherGone: Promise<void>;
}

/**
 * How containers are run. A driver keeps nothing in memory about its containers: all that it needs to find, adopt or remove one is on the host and in the
 * arguments, so that the next server can do it as well.
 */
export interface Driver {
  readonly name: DriverName;
  /**
   * Starts a container up to the point where its FIFOs can be opened; whether the guest comes up is seen there. Rejects with `start_failed`, naming the
   * phase, and leaves nothing behind.
   */
  launch(spec: LaunchSpec, options: DriverLaunchOptions): Promise<Container>;
  /** The container of a dead server, or undefined if it does not run any more. */
  adopt(ref: ContainerRef, layout: SandboxLayout): Promise<Container | undefined>;
  /** Idempotent and complete: processes, mounts, cgroup and run directory are gone, whatever state they were in, whether or not they were there. */
  remove(id: ContainerId, layout: SandboxLayout): Promise<void>;
}
