import { doctor } from "@atoll/engine";
import type { MachineDrivers } from "@atoll/guard";
import type { ResolvedProfile } from "@atoll/protocol";
import type { Config } from "../config/config.ts";

/** How long a machine on which nothing was missing is not checked again. */
const trustedMs = 60_000;

/**
 * Finds what each driver lacks on this machine. The result is kept for a while; where something is missing, the next
 * call checks again, so that a repair is noticed at once.
 */
export class MachineCheck {
  readonly #config: Pick<Config, "dataDir" | "guestPath" | "runscPath">;
  #last: { at: number; found: Promise<MachineDrivers> } | undefined;

  constructor(config: Pick<Config, "dataDir" | "guestPath" | "runscPath">) {
    this.#config = config;
  }

  async drivers(): Promise<MachineDrivers> {
    if (this.#last === undefined || performance.now() - this.#last.at > trustedMs) {
      this.#last = { at: performance.now(), found: this.#check() };
    }
    const { found } = this.#last;
    const drivers = await found.catch((error: unknown) => {
      this.#last = undefined;
      throw error;
    });
    if (drivers.gvisor.length + drivers.local.length > 0) this.#last = undefined;
    return drivers;
  }

  async #check(): Promise<MachineDrivers> {
    const { dataDir, guestPath, runscPath } = this.#config;
    const { findings } = await doctor({ dataDir, guestPath, ...(runscPath === undefined ? {} : { runscPath }) });
    const missing = findings.filter(({ status }) => status === "missing");
    const asMissing = (list: typeof missing): ResolvedProfile["missing"] =>
      list.map(({ name, found, needs, fix }) => ({
        what: `${name} (${found})`,
        fix: fix ?? `It needs ${needs ?? name}.`,
      }));
    return {
      gvisor: asMissing(missing),
      local: asMissing(missing.filter(({ affects }) => affects !== "gVisor sandboxes")),
    };
  }
}
