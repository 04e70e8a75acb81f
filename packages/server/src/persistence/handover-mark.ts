import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Sandbox } from "@atoll/engine";

const markOf = ({ ownerDir }: Pick<Sandbox, "ownerDir">): string => join(ownerDir, "handover");

/**
 * Notes that the pause which makes this checkpoint is nobody's wish but another server's, so that the sandbox goes on
 * if nothing comes of that and this server dies meanwhile.
 */
export async function markHandOver(sandbox: Pick<Sandbox, "ownerDir">, checkpoint: number): Promise<void> {
  await writeFile(markOf(sandbox), String(checkpoint), { mode: 0o600 });
}

/** For a pause that somebody wants: one that did not succeed before it may have had the same number. Idempotent. */
export async function unmarkHandOver(sandbox: Pick<Sandbox, "ownerDir">): Promise<void> {
  await rm(markOf(sandbox), { force: true });
}

/**
 * Whether it would run if no other server had asked for it. The mark goes along with the checkpoint, and means nothing
 * for a later one.
 */
export async function isStoppedForHandOver(sandbox: Pick<Sandbox, "ownerDir" | "record">): Promise<boolean> {
  const { record } = sandbox;
  if (record.state !== "paused") return false;
  const marked = await readFile(markOf(sandbox), "utf8").catch(() => "");
  return marked === String(record.checkpoint);
}
