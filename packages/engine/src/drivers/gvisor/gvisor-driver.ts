import { writeFile } from "node:fs/promises";
import type { ContainerId, ContainerRef } from "@atoll/protocol";
import type { SandboxLayout } from "../../store/layout.ts";
import type { ContainerRuns } from "../container-runs.ts";
import type { Container, Driver, DriverLaunchOptions, LaunchSpec } from "../driver.ts";
import { ociSpec } from "./oci-spec.ts";

export interface GvisorDriverOptions {
  runs: ContainerRuns;
  runscPath: string;
  platform: "systrap" | "ptrace";
}

/** Containers under gVisor: `runsc run` in the foreground, its root a host overlay, no network but loopback. */
export class GvisorDriver implements Driver {
  readonly name = "gvisor";
  #options: GvisorDriverOptions;

  constructor(options: GvisorDriverOptions) {
    this.#options = options;
  }

  launch(spec: LaunchSpec, options: DriverLaunchOptions): Promise<Container> {
    const { runs, runscPath, platform } = this.#options;
    return runs.launch(
      spec,
      (run) => {
        const content = ociSpec({ rootfs: run.rootfs, hostname: spec.hostname, limits: spec.limits });
        return {
          prepare: () => writeFile(run.specFile, JSON.stringify(content)),
          program: [
            runscPath,
            "--root",
            run.runtimeState,
            "--platform",
            platform,
            "--network=none",
            "--overlay2=none",
            "--ignore-cgroups",
            "run",
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

  remove(id: ContainerId, layout: SandboxLayout): Promise<void> {
    return this.#options.runs.remove(id, layout);
  }
}
