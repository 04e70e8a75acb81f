import { access, rm, writeFile } from "node:fs/promises";
import type { EngineContext } from "../engine-context.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { warn } from "../support/warn.ts";
import { resumeSandbox } from "./resume.ts";

/**
 * Marks a sandbox that will be resumed after a short pause, so that the next server resumes it if this one dies. A
 * sandbox with a deadline is not marked: it stays paused until its owner sets another deadline.
 */
export async function markForResume({ deadline, parts }: SandboxLife): Promise<void> {
  if (deadline.uptimeMs === undefined) await writeFile(parts.layout.resumeMark, "");
}

/** Idempotent. */
export async function unmark({ parts }: SandboxLife): Promise<void> {
  await rm(parts.layout.resumeMark, { force: true });
}

/**
 * Resumes sandboxes that the earlier server paused for a moment and died before it resumed them. One that cannot be
 * resumed stays paused.
 */
export async function resumeMarked(context: EngineContext): Promise<void> {
  await Promise.all([...context.lives.values()].map((life) => resumeIfMarked(context, life).catch(warn)));
}

async function resumeIfMarked(context: EngineContext, life: SandboxLife): Promise<void> {
  const isMarked = await access(life.parts.layout.resumeMark).then(
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
