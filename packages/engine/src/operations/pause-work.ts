import { messageOf } from "@atoll/host";
import {
  deadlineAfter,
  SandboxError,
  type CheckpointManifest,
  type ContainerRef,
  type EndedProcess,
} from "@atoll/protocol";
import type { CheckpointStore } from "../checkpoints/checkpoint-store.ts";
import { endedProcess } from "../checkpoints/deleted-file-users.ts";
import { readFirstLayers } from "../checkpoints/first-layers.ts";
import { PhaseClock } from "../checkpoints/phase-clock.ts";
import type { Freezer } from "../drivers/driver.ts";
import type { EngineContext } from "../engine-context.ts";
import type { DeletedFileUser } from "../guest/messages.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";

const guestAnswerMs = 10_000;

/** What one pause needs at every step. */
export interface Pause {
  context: EngineContext;
  life: SandboxLife;
  freezer: Freezer;
  store: CheckpointStore;
  container: ContainerRef;
  /** The checkpoint that is being made. */
  n: number;
  parent: CheckpointManifest | undefined;
  /** The layers under what it wrote: those of the parent, or what it began with. */
  ground: Pick<CheckpointManifest, "layers">;
  killed: AbortSignal;
  clock: PhaseClock;
  /** Whether it was asked to stand still: then it has to be woken before it goes on. */
  mayBeFrozen: boolean;
  /** The processes that `force` has ended so far. */
  ended: DeletedFileUser[];
}

/** `base`: the checkpoint that the sandbox stands on. Its time begins to count. */
export async function newPause(
  parts: Pick<Pause, "context" | "life" | "freezer" | "store" | "container" | "n" | "killed">,
  base: number | undefined,
): Promise<Pause> {
  const { life, store } = parts;
  const parent = base === undefined ? undefined : await store.read(base);
  const ground = parent ?? { layers: await readFirstLayers(life.parts.layout) };
  return { ...parts, parent, ground, clock: new PhaseClock(), mayBeFrozen: false, ended: [] };
}

export async function step({ context, life, killed }: Pause, name: string): Promise<void> {
  await context.atStep(`pause: ${name}`, life.record.id);
  killed.throwIfAborted();
}

/** A guest that has not answered by then is silent. */
export function answerBy(): AbortSignal {
  return deadlineAfter(guestAnswerMs);
}

/** Of an event about it. */
export function reportedEnded({ ended }: Pause): { ended?: EndedProcess[] } {
  return ended.length === 0 ? {} : { ended: ended.map(endedProcess) };
}

/** It can be neither saved nor kept running. Resolves to what whoever asked for the pause is told. */
export async function giveUp({ life, parent }: Pause, what: string, cause: unknown): Promise<SandboxError> {
  const isSaved = parent !== undefined;
  const survives = isSaved ? "its files survive, and its earlier checkpoints" : "its files survive";
  await life.fail({ kind: "driver", message: `${what}: ${messageOf(cause)}; ${survives}` });
  return new SandboxError("sandbox_ended", `Cannot pause sandbox ${life.record.id}: ${what}; ${survives}`, {
    suggestion: isSaved
      ? "Resume it without memory, which starts it afresh on its files, or roll it back to one of its checkpoints."
      : "Resume it without memory, which starts it afresh on its files, or take a snapshot of them.",
    details: { sandboxId: life.record.id, survives: isSaved ? ["files", "checkpoints"] : ["files"] },
    cause,
  });
}
