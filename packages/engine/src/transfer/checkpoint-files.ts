import { join } from "node:path";
import { SandboxError, type CheckpointManifest } from "@atoll/protocol";
import { CheckpointStore } from "../checkpoints/checkpoint-store.ts";
import type { EngineContext } from "../engine-context.ts";
import type { SandboxLayout } from "../store/layout.ts";

/** The paths of the parts of one checkpoint on this machine. The files do not change while the checkpoint exists. */
export interface CheckpointFiles {
  manifest: CheckpointManifest;
  memory: { name: string; path: string }[];
  /** The path of an archive; undefined if nothing was saved. */
  owner: string | undefined;
}

/** Rejects with `unrestorable` when there is no finished checkpoint of this number. */
export async function findCheckpointFiles(sandbox: SandboxLayout, n: number): Promise<CheckpointFiles> {
  const manifest = await new CheckpointStore(sandbox).read(n);
  const { memoryDir, ownerFile } = sandbox.checkpoint(n);
  return {
    manifest,
    memory: manifest.memory.map(({ name }) => ({ name, path: join(memoryDir, name) })),
    owner: manifest.owner === undefined ? undefined : ownerFile,
  };
}

/** Returns false if nothing was saved. */
export async function unpackOwner(
  { packer }: Pick<EngineContext, "packer">,
  { manifest, owner }: Pick<CheckpointFiles, "manifest" | "owner">,
  into: string,
  signal: AbortSignal,
): Promise<boolean> {
  if (manifest.owner === undefined) return false;
  if (owner === undefined)
    throw new SandboxError("unrestorable", "Cannot use owner: it is missing", { details: { part: "owner" } });
  await packer.unpack(owner, [into], { expected: manifest.owner, part: "owner", signal });
  return true;
}
