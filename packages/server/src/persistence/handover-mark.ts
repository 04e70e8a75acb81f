import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Sandbox } from "@atoll/engine";

const markOf = ({ ownerDir }: Pick<Sandbox, "ownerDir">): string => join(ownerDir, "handover");

/**
 * Records that the sandbox is paused for a hand-over only, so that the next server process resumes it if this one
 * crashes before the hand-over is done.
 */
export async function markHandOver(sandbox: Pick<Sandbox, "ownerDir">, checkpoint: number): Promise<void> {
  await writeFile(markOf(sandbox), String(checkpoint), { mode: 0o600 });
}

/**
 * Removes the record before a pause that a client asked for: an earlier pause that failed may have had the same number.
 * Repeated calls are allowed.
 */
export async function unmarkHandOver(sandbox: Pick<Sandbox, "ownerDir">): Promise<void> {
  await rm(markOf(sandbox), { force: true });
}

/**
 * Reports whether the sandbox would run if no other server had asked for it. The record is copied with the checkpoint,
 * and does not apply to a later one.
 */
export async function isStoppedForHandOver(sandbox: Pick<Sandbox, "ownerDir" | "record">): Promise<boolean> {
  const { record } = sandbox;
  if (record.state !== "paused") return false;
  const marked = await readFile(markOf(sandbox), "utf8").catch(() => "");
  return marked === String(record.checkpoint);
}
