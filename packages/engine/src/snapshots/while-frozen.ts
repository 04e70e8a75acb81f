import { access, rm, writeFile } from "node:fs/promises";
import type { ContainerRef } from "@atoll/protocol";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";

const mostThaws = 2;

/**
 * Runs `work` while all processes of a running sandbox are frozen. They are thawed afterwards in any case, also if this
 * server dies: the next one sees the mark.
 */
export async function whileFrozen<T>(
  life: SandboxLife,
  container: ContainerRef,
  killed: AbortSignal,
  work: () => Promise<T>,
): Promise<T> {
  const { driver, layout, idle } = life.parts;
  using _ = idle.preventSlack();
  await writeFile(layout.frozenMark, "");
  life.isFrozen = true;
  try {
    await driver.freeze(container, layout);
    return await work();
  } finally {
    await thaw(life, container, killed);
    life.isFrozen = false;
  }
}

/** Thaws the sandbox; if its deadline has passed, with the next deadline. */
async function thaw(life: SandboxLife, container: ContainerRef, killed: AbortSignal): Promise<void> {
  for (let attempt = 1; !killed.aborted; attempt += 1) {
    try {
      await life.deadline.allowed(killed);
      return await thawMarked(life, container);
    } catch (error) {
      if (killed.aborted) return;
      if (attempt < mostThaws || life.deadline.hasPassed) continue;
      const because = error instanceof Error ? error.message : String(error);
      return life.fail({ kind: "driver", message: `it does not thaw: ${because}` });
    }
  }
}

/** Thaws a sandbox that a server froze for a moment and died before it thawed it. Does nothing to others. */
export async function thawMarked(life: SandboxLife, container: ContainerRef): Promise<void> {
  const { driver, layout } = life.parts;
  const isMarked = await access(layout.frozenMark).then(
    () => true,
    () => false,
  );
  if (!isMarked) return;
  await driver.thaw(container, layout);
  await rm(layout.frozenMark, { force: true });
}
