import { bootId } from "@atoll/host";
import type { SandboxRecord } from "@atoll/protocol";
import { CheckpointStore } from "../checkpoints/checkpoint-store.ts";
import { layerId } from "../checkpoints/layer-library.ts";
import type { EngineContext } from "../engine-context.ts";
import { boundStack } from "../operations/bound-layers.ts";
import { newPause } from "../operations/pause-work.ts";
import { finishPause } from "../operations/pause.ts";
import type { SandboxLife } from "./sandbox-life.ts";

/** The time between two attempts to finish a pause, for example while the disk is full; doubled up to the longest. */
const firstRetryMs = 1_000;
const longestRetryMs = 60_000;

/**
 * Finishes or undoes a pause that was interrupted by the death of its server. What was saved is used: once the memory
 * image is complete the container can only end, so the pause is finished; before that it is undone. If it cannot be
 * finished now, it is attempted again while this server lives.
 */
export async function repairPause(
  context: EngineContext,
  life: SandboxLife,
  record: SandboxRecord & { state: "pausing" },
  removeContainers: () => Promise<void>,
  retryMs = firstRetryMs,
): Promise<"paused" | "not begun" | "lost"> {
  const { keeper, layout, driver } = life.parts;
  const { freezer } = driver;
  const { checkpoint: n, container, base } = record;
  if (freezer === undefined) return "not begun";
  const store = new CheckpointStore(layout);
  if ((await store.find(n)) !== undefined) {
    await removeContainers();
    await keeper.apply("checkpointed", (common) => ({ ...common, state: "paused", checkpoint: n }));
    return "paused";
  }
  const outcome = await freezer.findOutcome(container, layout.checkpoint(n));
  // What the machine had not written to its disk when it went down is lost, whatever else was written.
  const isOfThisBoot = container.bootId === (await bootId());
  switch (outcome === "saved" && !isOfThisBoot ? "failed" : outcome) {
    case "not begun":
      // The adoption thaws the container.
      await store.remove(n);
      return "not begun";
    case "failed":
      // What the sandbox wrote may have become the layer of a checkpoint that will not be made.
      await context.layers.unseal(layerId(record.id, n), layout);
      await store.remove(n);
      return "lost";
    case "saved": {
      await removeContainers();
      const killed = new AbortController().signal;
      const pause = await newPause({ context, life, freezer, store, container, n, killed }, base);
      const below = boundStack(pause);
      below.catch(() => undefined);
      try {
        await finishPause(pause, { stopped: Promise.resolve(), below });
      } catch (error) {
        const again = (): Promise<unknown> =>
          repairPause(context, life, record, removeContainers, Math.min(2 * retryMs, longestRetryMs));
        repairLater(context, life, again, retryMs);
        throw error;
      }
      return "paused";
    }
  }
}

function repairLater(context: EngineContext, life: SandboxLife, again: () => Promise<unknown>, delayMs: number): void {
  const isWanted = (): boolean => life.record.state === "pausing" && !context.isClosing;
  const timer = setTimeout(() => {
    if (!isWanted()) return;
    // A failed attempt schedules the next one by itself.
    life.inTurn(async () => (isWanted() ? again() : undefined)).catch(() => undefined);
  }, delayMs);
  timer.unref();
}
