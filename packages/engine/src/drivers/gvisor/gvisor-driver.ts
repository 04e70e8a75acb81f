import { writeFile } from "node:fs/promises";
import { basename } from "node:path";
import type { ContainerId, ContainerRef } from "@atoll/protocol";
import type { NodeDirectory } from "../../guest/guest-nodes.ts";
import type { TimerSlack } from "../../idle/timer-slack.ts";
import type { SandboxLayout } from "../../store/layout.ts";
import type { ContainerRuns } from "../container-runs.ts";
import type { Container, Driver, DriverLaunchOptions, LaunchSpec } from "../driver.ts";
import { ociSpec } from "./oci-spec.ts";
import { RunscFreezer } from "./runsc-freezer.ts";
import { misreadsLinkAttributes } from "./runsc-quirks.ts";
import { readState } from "./runsc-state.ts";
import { SentrySlack } from "./sentry-slack.ts";

export interface GvisorDriverOptions {
  runs: ContainerRuns;
  /** The guest's binary, which also talks to runsc. */
  guestPath: string;
  runscPath: string;
  runscVersion: string;
  /** The platform of containers that start without a memory image. */
  platform: string;
  /** All platforms that this runsc offers. */
  platforms: readonly string[];
  /** Whether an idle sandbox uses no processor time under systrap. */
  idlesForFree: boolean;
  /** The features of the processor that runsc shows, if not all. */
  shownFeatures?: readonly string[] | undefined;
}

/** Containers under gVisor: `runsc run` in the foreground, with a host overlay as root and no network but loopback. */
export class GvisorDriver implements Driver {
  readonly name = "gvisor";
  readonly freezer: RunscFreezer;
  #options: GvisorDriverOptions;

  constructor(options: GvisorDriverOptions) {
    this.#options = options;
    const { runs, platform } = options;
    this.freezer = new RunscFreezer({ ...options, fresh: { guest: basename(runs.guestLayer(undefined)), platform } });
  }

  launch(spec: LaunchSpec, options: DriverLaunchOptions): Promise<Container> {
    const { runs, runscPath, runscVersion, shownFeatures } = this.#options;
    const platform = spec.from?.platform ?? this.#options.platform;
    return runs.launch(
      spec,
      (run) => {
        const needs = { guest: basename(runs.guestLayer(spec.from)), platform };
        const content = ociSpec({
          rootfs: run.rootfs,
          hostname: spec.hostname,
          limits: spec.limits,
          needs,
          shownFeatures,
        });
        const memoryDir = spec.from?.memoryDir;
        return {
          prepare: () => writeFile(run.specFile, JSON.stringify(content)),
          batch: true,
          noAttributes: misreadsLinkAttributes(runscVersion),
          program: [
            runscPath,
            "--root",
            run.runtimeState,
            "--platform",
            platform,
            "--network=none",
            "--overlay2=none",
            "--ignore-cgroups",
            ...(memoryDir === undefined ? ["run"] : ["restore", "--image-path", memoryDir]),
            "--bundle",
            run.dir,
            spec.containerId,
          ],
        };
      },
      options,
    );
  }

  adopt(ref: ContainerRef, layout: SandboxLayout): Promise<Container | undefined> {
    return this.#options.runs.adopt(ref, layout);
  }

  findDirectories(ref: ContainerRef, layout: SandboxLayout): Promise<NodeDirectory[]> {
    return this.freezer.findDirectories(ref, layout);
  }

  freeze(ref: ContainerRef, layout: SandboxLayout): Promise<void> {
    return this.freezer.freeze(ref, layout);
  }

  thaw(ref: ContainerRef, layout: SandboxLayout): Promise<void> {
    return this.freezer.thaw(ref, layout);
  }

  async findTimerSlack(
    { ref, cgroup }: Pick<Container, "ref" | "cgroup">,
    layout: SandboxLayout,
  ): Promise<TimerSlack | undefined> {
    const { platform } = await this.freezer.findNeeds(ref, layout);
    const [cgroupDir] = cgroup.directories;
    if (platform !== "systrap" || this.#options.idlesForFree || cgroupDir === undefined) return undefined;
    const { sandbox } = await readState(ref, layout);
    return new SentrySlack({ pid: sandbox.pid, cgroupDir, fifo: layout.run(ref.id).slackFifo });
  }

  end(id: ContainerId): Promise<void> {
    return this.#options.runs.end(id);
  }

  remove(id: ContainerId, layout: SandboxLayout): Promise<void> {
    return this.#options.runs.remove(id, layout);
  }
}
