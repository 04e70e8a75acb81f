import { readdir } from "node:fs/promises";
import { join } from "node:path";
import type { LiveManager } from "@atoll/live";

/** A text that has been through all plug-ins, and what happened to those that failed. */
export interface Applied {
  text: string;
  failures: { plugin: string; reason: string }[];
}

const callTimeoutMs = 2_000;

/**
 * Loads plug-ins that are not trusted. Each is an app of its own in a gVisor sandbox: a folder with a service
 * `plugin` that has a call `apply`, which gets a text and returns another. A plug-in that hangs, crashes or uses up its
 * memory fails alone, and is started again for the next text.
 */
export class PluginHost {
  readonly #manager: LiveManager;
  readonly #plugins: string[] = [];

  constructor(manager: LiveManager) {
    this.#manager = manager;
  }

  /** Starts every plug-in of the folder, in the order of their names. */
  async load(folder: string): Promise<readonly string[]> {
    const names = (await readdir(folder)).toSorted();
    await Promise.all(
      names.map((name) =>
        this.#manager.create(name, join(folder, name), {
          isolation: "gvisor",
          limits: { memoryBytes: 64 * 1024 * 1024, cpus: 0.5, processes: 20, unresponsiveMs: callTimeoutMs },
          maxRestarts: 1_000,
        }),
      ),
    );
    this.#plugins.push(...names);
    return names;
  }

  /** Passes the text through all plug-ins. The text goes past one that fails. */
  async apply(text: string): Promise<Applied> {
    const failures: Applied["failures"] = [];
    let current = text;
    for (const plugin of this.#plugins) {
      try {
        const answer = await this.#manager.call(plugin, "plugin", "apply", current, callTimeoutMs);
        // What comes from outside is checked, like any input.
        if (typeof answer !== "string") throw new Error(`it returned a ${typeof answer}`);
        current = answer;
      } catch (error) {
        failures.push({ plugin, reason: error instanceof Error ? error.message : String(error) });
      }
    }
    return { text: current, failures };
  }

  /** Brings a new version of a plug-in in. It keeps its state; a version that does not work changes nothing. */
  async update(plugin: string): Promise<number> {
    return (await this.#manager.hotReload(plugin)).generation;
  }
}
