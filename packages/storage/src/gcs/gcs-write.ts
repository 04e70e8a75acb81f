import { randomUUID } from "node:crypto";
import { isSandboxError } from "@atoll/protocol";
import { absentAsUndefined } from "../bucket/outcomes.ts";
import { conflict } from "../call-checks.ts";
import type { WriteCondition } from "../object-store.ts";
import type { GcsBucket, GcsCondition, GcsEntry, GcsMark } from "./gcs-bucket.ts";

/** Generations are numbers. The store reads `0` as "no object", so it is not a generation. */
const generationShape = /^[1-9]\d{0,18}$/;

export const newMark = (): GcsMark => ({ write: randomUUID() });

/**
 * Writes under a condition, or rejects with `conflict`. A write whose answer is lost is retried, and the store then
 * refuses the retry because the first attempt succeeded: so after a refusal, what is stored is compared with what was
 * written.
 */
export async function writeIf(
  target: { bucket: GcsBucket; key: string; name: string; signal: AbortSignal },
  condition: WriteCondition["if"],
  mark: GcsMark,
  send: (condition: GcsCondition) => Promise<GcsEntry>,
): Promise<GcsEntry> {
  const { bucket, key, name, signal } = target;
  if (condition === undefined) return send({});
  if (condition !== "absent") {
    if (!generationShape.test(condition)) throw conflict(key);
    const replaced = await sendOnce(condition);
    if (replaced.isDone) return replaced.entry;
    throw conflict(key);
  }
  const created = await sendOnce("0");
  if (created.isDone) return created.entry;
  // What stands for a removed object exists for the store only, and for no reader.
  if (created.found?.isRemoved !== true) throw conflict(key);
  const overTombstone = await sendOnce(created.found.generation);
  if (overTombstone.isDone) return overTombstone.entry;
  throw conflict(key);

  async function sendOnce(
    ifGenerationMatch: string,
  ): Promise<{ isDone: true; entry: GcsEntry } | { isDone: false; found: GcsEntry | undefined }> {
    try {
      return { isDone: true, entry: await send({ ifGenerationMatch }) };
    } catch (error) {
      if (!isSandboxError(error, "conflict")) throw error;
    }
    const found = await absentAsUndefined(() => bucket.head(name, signal));
    return found?.write === mark.write ? { isDone: true, entry: found } : { isDone: false, found };
  }
}
