import type { ContainerId, ContainerRef } from "@atoll/protocol";
import type { SandboxLayout } from "../../store/layout.ts";
import type { ContainerRuns } from "../container-runs.ts";
import type { Container, Driver, DriverLaunchOptions, LaunchSpec } from "../driver.ts";
import { guestInside } from "../gvisor/oci-spec.ts";

/** The threads of the guest and of its tools, which the limit on the user's processes does not count. */
const reservedProcesses = 64;

/**
 * Runs containers as plain processes of the host's kernel, in namespaces of their own, with the same root, guest and
 * network as under gVisor but hardly any isolation. For trusted code, and for tests.
 */
export class LocalDriver implements Driver {
  readonly name = "local";
  #runs: ContainerRuns;

  constructor(options: { runs: ContainerRuns }) {
    this.#runs = options.runs;
  }

  launch(spec: LaunchSpec, options: DriverLaunchOptions): Promise<Container> {
    return this.#runs.launch(
      spec,
      (run) => ({
        enter: { root: run.rootfs, hostname: spec.hostname },
        program: [guestInside, "init"],
      }),
      { ...options, pidsMax: spec.limits.processes + reservedProcesses },
    );
  }

  adopt(ref: ContainerRef, layout: SandboxLayout): Promise<Container | undefined> {
    return this.#runs.adopt(ref, layout);
  }

  freeze(ref: ContainerRef): Promise<void> {
    return this.#runs.freeze(ref.id);
  }

  thaw(ref: ContainerRef): Promise<void> {
    return this.#runs.thaw(ref.id);
  }

  end(id: ContainerId): Promise<void> {
    return this.#runs.end(id);
  }

  remove(id: ContainerId, layout: SandboxLayout): Promise<void> {
    return this.#runs.remove(id, layout);
  }
}
