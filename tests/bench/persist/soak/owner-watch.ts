import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { isFrozen } from "../../../support/freezer.ts";
import type { Place } from "../server-pair.ts";

const intervalMs = 20;

/** Looks all the time whether a sandbox runs on both servers. */
export class OwnerWatch implements AsyncDisposable {
  /** How often it was seen to. */
  doubles = 0;
  looks = 0;
  readonly #stop = new AbortController();
  readonly #watching: Promise<void>;

  constructor(places: readonly [Place, Place], id: string) {
    this.#watching = this.#watch(places, id);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#watching;
  }

  async #watch([a, b]: readonly [Place, Place], id: string): Promise<void> {
    while (!this.#stop.signal.aborted) {
      // The first twice: it ran at the moment at which the second did only if it ran before and after.
      const before = await runningContainer(a, id);
      const [other, after] = [await runningContainer(b, id), await runningContainer(a, id)];
      this.looks += 1;
      if (before !== undefined && before === after && other !== undefined) this.doubles += 1;
      await sleep(intervalMs, undefined, { signal: this.#stop.signal }).catch(() => undefined);
    }
  }
}

/** The group of a container that is there and not frozen. */
async function runningContainer({ server }: Place, id: string): Promise<string | undefined> {
  try {
    const record = JSON.parse(await readFile(join(server.dataDir, "sandboxes", id, "record.json"), "utf8")) as {
      container?: { pid: number };
    };
    if (record.container === undefined) return undefined;
    const words = (await readFile(`/proc/${record.container.pid}/cmdline`, "utf8")).split("\0");
    const group = words[words.indexOf("--freezer") + 1] ?? "";
    const isThere = (await readFile(join(group, "cgroup.procs"), "utf8")).trim() !== "";
    return isThere && !isFrozen(group) ? group : undefined;
  } catch {
    // What is gone between two looks does not run.
    return undefined;
  }
}
