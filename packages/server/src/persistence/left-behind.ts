import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { type Sandbox } from "@atoll/engine";
import { writeDurably } from "@atoll/host";
import { z } from "zod";

/** A checkpoint that a rollback leaves behind and that is not stored yet. */
export const LeftBehind = z.strictObject({
  n: z.int().min(1),
  /**
   * The epoch of the lease under which the number was reserved in the metadata: no other server uses the number, so the
   * checkpoint can be stored without the lease as well.
   */
  epoch: z.int().min(1).optional(),
});
export type LeftBehind = z.infer<typeof LeftBehind>;

const File = z.strictObject({ version: z.literal(1), checkpoints: z.array(LeftBehind) });

const fileOf = ({ ownerDir }: Pick<Sandbox, "ownerDir">): string => join(ownerDir, "left-behind.json");

/**
 * Reads the list. The file is copied with checkpoints to other servers: there it may name checkpoints that are not on
 * the machine.
 */
export async function readLeftBehind(sandbox: Pick<Sandbox, "ownerDir">): Promise<LeftBehind[]> {
  const text = await readFile(fileOf(sandbox), "utf8").catch((error: unknown) => {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  });
  if (text === undefined) return [];
  try {
    return File.parse(JSON.parse(text)).checkpoints;
  } catch {
    // A file of another version must not keep the sandbox from being paused and stored.
    return [];
  }
}

/** Writes the list so that it survives a crash of this process and of the machine. */
export async function writeLeftBehind(sandbox: Pick<Sandbox, "ownerDir">, checkpoints: LeftBehind[]): Promise<void> {
  if (checkpoints.length === 0) await rm(fileOf(sandbox), { force: true });
  else await writeDurably(fileOf(sandbox), JSON.stringify({ version: 1, checkpoints } satisfies z.infer<typeof File>));
}
