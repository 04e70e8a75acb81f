import { messageOf } from "@atoll/host";
import { firstToAbort, isSandboxError, SandboxError, type CheckpointManifest, type SandboxId } from "@atoll/protocol";
import { assertDiskSpace } from "../checkpoints/assert-disk-space.ts";
import { endDeletedFileUsers, findDeletedFileUsers, unsaveable } from "../checkpoints/deleted-file-users.ts";
import { based } from "../checkpoints/dependents.ts";
import { frozenBytesOf } from "../checkpoints/launch-source.ts";
import { settleAll } from "../support/settle-all.ts";
import { answerBy, step, reportedEnded, type Pause } from "./pause-work.ts";
import type { prepareGuest } from "./prepare-guest.ts";

const mostWakings = 2;
/** Processes can open and delete files as fast as others are ended. */
const mostForcedRounds = 5;

interface FreezeOptions {
  force: boolean;
  prepared: ReturnType<typeof prepareGuest>;
}

/** From here to `save` everything can be undone by waking it up. */
export async function freezeOrResume(pause: Pause, options: FreezeOptions): Promise<void> {
  const { life, container, killed, clock } = pause;
  const { keeper } = life.parts;
  try {
    const nodes = await options.prepared;
    await settleAll([freeze(pause, options.force), begin(pause, nodes)]);
    // From here on it is saved or it ends: nothing in it runs any more.
    await life.deadline.suspend();
    clock.lap("freeze");
  } catch (error) {
    killed.throwIfAborted();
    try {
      await life.deadline.enforce();
      await wake(pause);
      const base = pause.parent?.n;
      const running = { state: "running" as const, container, ...based(base) };
      await keeper.apply("refused", (common) => ({ ...common, ...running }), reportedEnded(pause));
    } catch (cause) {
      killed.throwIfAborted();
      await life.fail({ kind: "driver", message: `it does not wake up: ${messageOf(cause)}` });
      throw error;
    }
    life.live(frozenBytesOf(pause.ground));
    // Nothing is in it: one that stays is in nobody's way.
    await pause.store.remove(pause.n).catch(() => undefined);
    throw isLate(error) ? silent(life.record.id, error) : error;
  }
}

/**
 * When its deadline has passed it is woken with the next one. A guest that is too busy to answer is no reason to give
 * up a sandbox that runs: the greeting lies before it, and its answer is taken whenever it comes. Rejects when the
 * runtime has ended, or cannot be woken.
 */
async function wake(pause: Pause): Promise<void> {
  const { life, freezer, container, killed } = pause;
  for (let attempt = 1; ; attempt += 1) {
    await life.deadline.allowed(killed);
    try {
      if (pause.mayBeFrozen) await freezer.thaw(container, life.parts.layout);
      return await life.channel.greet(firstToAbort(answerBy(), killed));
    } catch (error) {
      killed.throwIfAborted();
      const isDone = attempt >= mostWakings || !pause.mayBeFrozen;
      // A freeze that was given up on because the container stood still may have come after this.
      if (!isDone || life.deadline.hasPassed) continue;
      if (isLate(error) && life.channel.isOpen) return;
      throw error;
    }
  }
}

/** Of `answerBy` or the guest's watch: everything else that takes too long says what it was. */
function isLate(error: unknown): boolean {
  if (isSandboxError(error, "guest_silent")) return true;
  return error instanceof DOMException && error.name === "TimeoutError";
}

function silent(id: SandboxId, cause: unknown): SandboxError {
  return new SandboxError("guest_silent", `Cannot pause sandbox ${id}: its guest does not answer; it runs on`, {
    suggestion: "Try again when it has more CPU time.",
    details: { sandboxId: id },
    cause,
  });
}

async function begin(
  { life, freezer, store, container, n }: Pause,
  nodes: Pick<CheckpointManifest, "nodes">,
): Promise<void> {
  const needs = await freezer.findNeeds(container, life.parts.layout);
  await store.begin(n, { ...needs, ...nodes });
}

/** Its guest is prepared. */
async function freeze(pause: Pause, force: boolean): Promise<void> {
  const { life, freezer, container, killed } = pause;
  const { layout } = life.parts;
  for (let round = 0; ; round += 1) {
    if (round > 0) await life.channel.prepareCheckpoint(answerBy());
    await step(pause, "prepared");
    pause.mayBeFrozen = true;
    await freezer.freeze(container, layout);
    await step(pause, "frozen");
    const { unsaveable: files, memoryBytes } = await freezer.inspect(container, layout);
    killed.throwIfAborted();
    // Nobody is ended for a pause that cannot be.
    if (files.length === 0 || force) await assertDiskSpace(layout.dir, memoryBytes);
    if (files.length === 0) return;
    await freezer.thaw(container, layout);
    await life.channel.greet(answerBy());
    const found = await findDeletedFileUsers(life.channel, files);
    if (!force || round === mostForcedRounds || found.processes.length === 0) throw unsaveable(life.record.id, found);
    await endDeletedFileUsers(life, found, pause.ended);
  }
}
