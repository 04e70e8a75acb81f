import { join } from "node:path";
import type { CheckpointManifest } from "@atoll/protocol";
import { CheckpointStore } from "../checkpoints/checkpoint-store.ts";
import type { SandboxLayout } from "../store/layout.ts";

/** Where the parts of one checkpoint are on this machine. They do not change while the checkpoint exists. */
export interface CheckpointFiles {
  manifest: CheckpointManifest;
  memory: { name: string; path: string }[];
  /** An archive; undefined: nothing was kept. */
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
