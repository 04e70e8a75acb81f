import { bootId } from "@atoll/host";
import type { SandboxRecord } from "@atoll/protocol";
import { CheckpointStore } from "../checkpoints/checkpoint-store.ts";
import { layerId } from "../checkpoints/layer-library.ts";
import type { EngineContext } from "../engine-context.ts";
import { boundStack } from "../operations/bound-layers.ts";
import { newPause } from "../operations/pause-work.ts";
import { finishPause } from "../operations/pause.ts";
import type { SandboxLife } from "./sandbox-life.ts";

/** Between two tries to finish a pause that there was no room for, say; doubled up to the longest. */
const firstRetryMs = 1_000;
const longestRetryMs = 60_000;

/**
 * Settles a pause that its server did not live to finish. Whatever was saved is used: once the memory image is complete
 * the container can only die, so the pause is finished; before that it is called off. One that cannot be finished now
 * is tried again while this server lives.
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
  // What the machine had not written to its disk when it went down is gone, whatever stands beside it.
  const isOfThisBoot = container.bootId === (await bootId());
  switch (outcome === "saved" && !isOfThisBoot ? "failed" : outcome) {
    case "not begun":
      // Whoever takes it over wakes it.
      await store.remove(n);
      return "not begun";
    case "failed":
      // What it wrote may have become the layer of a checkpoint that there will not be.
      await context.layers.thaw(layerId(record.id, n), layout);
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
    // One that fails comes back by itself.
    life.inTurn(async () => (isWanted() ? again() : undefined)).catch(() => undefined);
  }, delayMs);
  timer.unref();
}
