import { access, rm, writeFile } from "node:fs/promises";
import type { EngineContext } from "../engine-context.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { warn } from "../support/warn.ts";
import { resumeSandbox } from "./resume.ts";

/**
 * Notes that a sandbox goes on after what is about to be done, so that the next server wakes it if this one dies. Not
 * for one that may run only until some time: whoever gave it that has to give it another first, and until then it stays
 * paused.
 */
export async function markToWake({ deadline, parts }: SandboxLife): Promise<void> {
  if (deadline.uptimeMs === undefined) await writeFile(parts.layout.wakeMark, "");
}

/** Idempotent. */
export async function unmark({ parts }: SandboxLife): Promise<void> {
  await rm(parts.layout.wakeMark, { force: true });
}

/**
 * Wakes those that the server before this one has paused for a moment and did not live to wake. One that does not wake
 * up stays paused.
 */
export async function wakeMarked(context: EngineContext): Promise<void> {
  await Promise.all([...context.lives.values()].map((life) => wakeIfMarked(context, life).catch(warn)));
}

async function wakeIfMarked(context: EngineContext, life: SandboxLife): Promise<void> {
  const isMarked = await access(life.parts.layout.wakeMark).then(
    () => true,
    () => false,
  );
  if (!isMarked) return;
  try {
    if (life.record.state === "paused") await resumeSandbox(context, life);
  } finally {
    await unmark(life);
  }
}
