import { availableParallelism } from "node:os";
import { messageOf } from "@atoll/host";
import { isSandboxError, SandboxError } from "@atoll/protocol";

/** What became of one app of a batch. A failure of one never ends the others. */
export type BatchResult<T> = { id: string } & ({ ok: true; value: T } | { ok: false; error: SandboxError });

export interface BatchOptions {
  /** How many apps are worked on at a time; as many as there are processors by default. */
  concurrency?: number;
}

/** Does the same for each item, in the order given, and returns what became of each. */
export async function batch<I extends { id: string }, T>(
  items: readonly I[],
  { concurrency = availableParallelism() }: BatchOptions,
  work: (item: I) => Promise<T>,
): Promise<BatchResult<T>[]> {
  if (!Number.isInteger(concurrency) || concurrency < 1) {
    throw new SandboxError("invalid_argument", `Cannot work on ${concurrency} apps at a time`, {
      suggestion: "Give a whole number from 1.",
    });
  }
  const results: BatchResult<T>[] = [];
  const waiting = items.entries();
  const lane = async (): Promise<void> => {
    for (const [at, item] of waiting) results[at] = await one(item, work);
  };
  await Promise.all(Array.from({ length: Math.min(concurrency, items.length) }, lane));
  return results;
}

async function one<I extends { id: string }, T>(item: I, work: (item: I) => Promise<T>): Promise<BatchResult<T>> {
  const { id } = item;
  try {
    return { id, ok: true, value: await work(item) };
  } catch (error) {
    const known = isSandboxError(error) ? error : new SandboxError("internal", messageOf(error), { cause: error });
    return { id, ok: false, error: known };
  }
}
