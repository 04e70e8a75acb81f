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
  /** The number of the checkpoint that is being made. */
  n: number;
  parent: CheckpointManifest | undefined;
  /** The layers below what the sandbox wrote: those of its current checkpoint, or those that it began with. */
  ground: Pick<CheckpointManifest, "layers">;
  killed: AbortSignal;
  clock: PhaseClock;
  /** Whether a freeze was requested: then the sandbox has to be thawed before it continues. */
  mayBeFrozen: boolean;
  /** The processes that `force` has ended so far. */
  ended: DeletedFileUser[];
}

/** `base` is the checkpoint that the sandbox depends on. The clock of the pause starts now. */
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

/** Returns a signal that aborts when a guest that has not answered counts as silent. */
export function answerDeadline(): AbortSignal {
  return deadlineAfter(guestAnswerMs);
}

/** Returns the field `ended` of an event about the pause. */
export function reportedEnded({ ended }: Pause): { ended?: EndedProcess[] } {
  return ended.length === 0 ? {} : { ended: ended.map(endedProcess) };
}

/** Fails a sandbox that can be neither saved nor kept running. Resolves to the error for the caller of the pause. */
export async function failPause({ life, parent }: Pause, what: string, cause: unknown): Promise<SandboxError> {
  const isSaved = parent !== undefined;
  const survives = isSaved ? "its files survive, and its earlier checkpoints" : "its files survive";
  await life.fail({ kind: "driver", message: `${what}: ${messageOf(cause)}; ${survives}` });
  return new SandboxError("sandbox_ended", `Cannot pause sandbox ${life.record.id}: ${what}; ${survives}`, {
    suggestion: isSaved
      ? "Resume it without memory, which starts it again from its files, or roll it back to one of its checkpoints."
      : "Resume it without memory, which starts it again from its files, or take a snapshot of them.",
    details: { sandboxId: life.record.id, survives: isSaved ? ["files", "checkpoints"] : ["files"] },
    cause,
  });
}
