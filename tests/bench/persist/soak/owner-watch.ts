import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { isFrozen } from "../../../support/freezer.ts";
import type { PairMember } from "../server-pair.ts";

const intervalMs = 20;

/** Checks in a loop whether a sandbox runs on both servers at the same time. */
export class OwnerWatch implements AsyncDisposable {
  /** The number of checks that saw it run on both. */
  doubles = 0;
  looks = 0;
  readonly #stop = new AbortController();
  readonly #watching: Promise<void>;

  constructor(members: readonly [PairMember, PairMember], id: string) {
    this.#watching = this.#watch(members, id);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#watching;
  }

  async #watch([a, b]: readonly [PairMember, PairMember], id: string): Promise<void> {
    while (!this.#stop.signal.aborted) {
      // The first server is checked twice. Only if the sandbox ran there before and after did it run there while the
      // second one was checked.
      const before = await runningContainer(a, id);
      const [other, after] = [await runningContainer(b, id), await runningContainer(a, id)];
      this.looks += 1;
      if (before !== undefined && before === after && other !== undefined) this.doubles += 1;
      await sleep(intervalMs, undefined, { signal: this.#stop.signal }).catch(() => undefined);
    }
  }
}

/** Returns the cgroup of the container if it exists and is not frozen. */
async function runningContainer({ server }: PairMember, id: string): Promise<string | undefined> {
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
    // A container that ended between two reads does not run.
    return undefined;
  }
}
