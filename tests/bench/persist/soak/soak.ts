import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Trial } from "../../benchmark.ts";
import { exitCodeOf, outputOf } from "../../host-command.ts";
import { ServerPair } from "../server-pair.ts";
import { runAction } from "./actions.ts";
import { OwnerWatch } from "./owner-watch.ts";
import { planCycle } from "./plan.ts";
import { StuckError } from "./retry.ts";
import { SoakSandbox } from "./soak-sandbox.ts";

/**
 * The lease time is short, so that other servers soon get the sandboxes of a dead one. The result does not depend on
 * it.
 */
const leaseTtlMs = "4000";

/** One sandbox lives through failures of servers, disks and stores, and must lose nothing. */
export const soak: Trial = {
  name: "persist.soak",
  title: "a sandbox is paused, forked, handed over, and its servers, uploads, disk and store fail; time of one cycle",
  unit: "ms",
  better: "lower",
  bar: { of: "checks", text: "0 lost, doubled, two owners, stuck" },
  rounds: { full: 300, quick: 30 },
  async attempt(bench, rounds) {
    await using disk = await Disk.mount(join(bench.dir, "disk"));
    await using pair = await ServerPair.open(disk.path, "s3", ["--lease-ttl-ms", leaseTtlMs]);
    const sandbox = await SoakSandbox.create(pair.members[0], bench.signal);
    await using owners = new OwnerWatch(pair.members, sandbox.id);
    const ours: number[] = [];
    const wrong: string[] = [];
    const stuck: string[] = [];
    const until = <T>(promise: Promise<T>, what: string): Promise<T> => bench.until(promise, what);
    for (let round = 0; round < rounds && wrong.length + stuck.length === 0; round += 1) {
      bench.signal.throwIfAborted();
      const cycle = planCycle(bench.seed + round);
      const named = `--seed ${cycle.seed} begins with ${cycle.action}`;
      bench.progress.report(`cycle ${round + 1} of ${rounds}: ${cycle.action}, seed ${cycle.seed}`);
      const startMs = performance.now();
      try {
        await sandbox.work(pair.members[cycle.at], cycle);
        const { next, problems } = await runAction({ pair, sandbox, disk: disk.path, until }, cycle);
        problems.push(...(await sandbox.check(next)));
        wrong.push(...problems.map((problem) => `${named}: ${problem}`));
      } catch (error) {
        bench.signal.throwIfAborted();
        (error instanceof StuckError ? stuck : wrong).push(`${named}: ${String(error)}`);
      }
      ours.push(performance.now() - startMs);
    }
    if (wrong.length + stuck.length === 0) wrong.push(...(await sandbox.finish(pair.members[1])));
    return {
      ours,
      checks: [
        { text: `${ours.length} of ${rounds} cycles were run`, isMet: ours.length === rounds },
        { text: `${wrong.length} times something was lost, doubled or wrong`, isMet: wrong.length === 0 },
        { text: `${stuck.length} times it was stuck`, isMet: stuck.length === 0 },
        { text: `in ${owners.doubles} of ${owners.looks} looks it ran twice`, isMet: owners.doubles === 0 },
      ],
      notes: [`seed ${bench.seed}`, ...wrong, ...stuck],
    };
  },
};

/** A disk for both servers, so that a test can fill it. */
class Disk implements AsyncDisposable {
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  static async mount(path: string): Promise<Disk> {
    await mkdir(path);
    await outputOf("mount", ["-t", "tmpfs", "-o", "size=1g,mode=700", "tmpfs", path]);
    return new Disk(path);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // A process that is about to exit may still use the mount, which then goes away with that process.
    if ((await exitCodeOf("umount", [this.path])) !== 0) await exitCodeOf("umount", ["--lazy", this.path]);
  }
}
