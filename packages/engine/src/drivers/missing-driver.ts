import type { ContainerId, ContainerRef, DriverName, SandboxError } from "@atoll/protocol";
import type { SandboxLayout } from "../store/layout.ts";
import type { ContainerRuns } from "./container-runs.ts";
import type { Container, Driver } from "./driver.ts";

/**
 * Stands in for a driver that a sandbox was started with and this machine does not have any more. It starts nothing;
 * running containers can still be used and removed, because that needs only what is on the host.
 */
export class MissingDriver implements Driver {
  readonly name: DriverName;
  readonly because: SandboxError;
  #runs: ContainerRuns;

  constructor(name: DriverName, runs: ContainerRuns, because: SandboxError) {
    this.name = name;
    this.because = because;
    this.#runs = runs;
  }

  async launch(): Promise<Container> {
    throw this.because;
  }

  adopt(ref: ContainerRef, layout: SandboxLayout): Promise<Container | undefined> {
    return this.#runs.adopt(ref, layout);
  }

  async freeze(): Promise<void> {
    throw this.because;
  }

  async thaw(): Promise<void> {
    throw this.because;
  }

  end(id: ContainerId): Promise<void> {
    return this.#runs.end(id);
  }

  remove(id: ContainerId, layout: SandboxLayout): Promise<void> {
    return this.#runs.remove(id, layout);
  }
}
