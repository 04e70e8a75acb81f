import { messageOf } from "@atoll/host";
import { firstToAbort, isSandboxError, SandboxError, type CheckpointManifest, type SandboxId } from "@atoll/protocol";
import { assertDiskSpace } from "../checkpoints/assert-disk-space.ts";
import { optionalBase } from "../checkpoints/current-checkpoint.ts";
import { endDeletedFileUsers, findDeletedFileUsers, unsaveable } from "../checkpoints/deleted-file-users.ts";
import { layerBytesOf } from "../checkpoints/launch-source.ts";
import { settleAll } from "../support/settle-all.ts";
import { answerDeadline, step, reportedEnded, type Pause } from "./pause-work.ts";
import type { prepareGuest } from "./prepare-guest.ts";

const mostThaws = 2;
/** Processes can open and delete files as fast as others are ended, so the number of rounds is limited. */
const mostForcedRounds = 5;

interface FreezeOptions {
  force: boolean;
  prepared: ReturnType<typeof prepareGuest>;
}

/** Freezes the sandbox; until `save` a thaw undoes everything. */
export async function freezeOrThaw(pause: Pause, options: FreezeOptions): Promise<void> {
  const { life, container, killed, clock } = pause;
  const { keeper } = life.parts;
  try {
    const nodes = await options.prepared;
    await settleAll([freeze(pause, options.force), begin(pause, nodes)]);
    // From here on the sandbox is saved or it ends: nothing in it runs any more.
    await life.deadline.suspend();
    clock.lap("freeze");
  } catch (error) {
    killed.throwIfAborted();
    try {
      await life.deadline.enforce();
      await thaw(pause);
      const base = pause.parent?.n;
      const running = { state: "running" as const, container, ...optionalBase(base) };
      await keeper.apply("refused", (common) => ({ ...common, ...running }), reportedEnded(pause));
    } catch (cause) {
      killed.throwIfAborted();
      await life.fail({ kind: "driver", message: `it does not thaw: ${messageOf(cause)}` });
      throw error;
    }
    life.live(layerBytesOf(pause.ground));
    // The directory is empty, so it does no harm if it stays.
    await pause.store.remove(pause.n).catch(() => undefined);
    throw isLate(error) ? silent(life.record.id, error) : error;
  }
}

/**
 * Thaws the sandbox. If its deadline has passed, it is thawed with the next one. A guest that is too busy to answer is
 * no reason to end a sandbox that runs: the greeting is in its FIFO, and its answer is accepted whenever it comes.
 * Rejects when the runtime has ended, or cannot be thawed.
 */
async function thaw(pause: Pause): Promise<void> {
  const { life, freezer, container, killed } = pause;
  for (let attempt = 1; ; attempt += 1) {
    await life.deadline.allowed(killed);
    try {
      if (pause.mayBeFrozen) await freezer.thaw(container, life.parts.layout);
      return await life.channel.greet(firstToAbort(answerDeadline(), killed));
    } catch (error) {
      killed.throwIfAborted();
      const isDone = attempt >= mostThaws || !pause.mayBeFrozen;
      // A freeze that was abandoned because the container did not react may take effect after this thaw.
      if (!isDone || life.deadline.hasPassed) continue;
      if (isLate(error) && life.channel.isOpen) return;
      throw error;
    }
  }
}

/** Says whether the error is that of `answerDeadline` or of the guest's watch; other timeouts say what took so long. */
function isLate(error: unknown): boolean {
  if (isSandboxError(error, "guest_silent")) return true;
  return error instanceof DOMException && error.name === "TimeoutError";
}

function silent(id: SandboxId, cause: unknown): SandboxError {
  return new SandboxError("guest_silent", `Cannot pause sandbox ${id}: its guest does not answer; it still runs`, {
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

/** Freezes a sandbox whose guest is prepared. */
async function freeze(pause: Pause, force: boolean): Promise<void> {
  const { life, freezer, container, killed } = pause;
  const { layout } = life.parts;
  for (let round = 0; ; round += 1) {
    if (round > 0) await life.channel.prepareCheckpoint(answerDeadline());
    await step(pause, "prepared");
    pause.mayBeFrozen = true;
    await freezer.freeze(container, layout);
    await step(pause, "frozen");
    const { unsaveable: files, memoryBytes } = await freezer.inspect(container, layout);
    killed.throwIfAborted();
    // If the pause cannot succeed, no process is ended for it.
    if (files.length === 0 || force) await assertDiskSpace(layout.dir, memoryBytes);
    if (files.length === 0) return;
    await freezer.thaw(container, layout);
    await life.channel.greet(answerDeadline());
    const found = await findDeletedFileUsers(life.channel, files);
    if (!force || round === mostForcedRounds || found.processes.length === 0) throw unsaveable(life.record.id, found);
    await endDeletedFileUsers(life, found, pause.ended);
  }
}
