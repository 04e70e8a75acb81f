import { constants, copyFile, mkdir } from "node:fs/promises";
import { syncFilesystem } from "@atoll/host";
import { CheckpointManifest, firstToAbort, SandboxError } from "@atoll/protocol";
import { CheckpointStore } from "../checkpoints/checkpoint-store.ts";
import { assertMachineFits, ofCheckpoint } from "../checkpoints/verify-checkpoint.ts";
import type { EngineContext } from "../engine-context.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { removeTree } from "../store/remove-tree.ts";
import { parseRequest } from "../support/parse-request.ts";
import { settleAll } from "../support/settle-all.ts";
import { assertBelongs, importLayer, type CheckpointImport } from "./import-sandbox.ts";

/**
 * Adds a checkpoint that was made of this very sandbox, here or on another machine, to its checkpoints here. The
 * sandbox does not change, and runs on if it was running. Everything is verified; when this rejects, nothing is left of
 * the import. The leftovers of a crash are removed later.
 */
export function importCheckpoint(
  context: EngineContext,
  life: SandboxLife,
  given: CheckpointImport,
  { signal }: { signal?: AbortSignal } = {},
): Promise<void> {
  return life.inTurn(async (killed) => {
    const { layout, driver, template } = life.parts;
    const { record } = life;
    const manifest = parseRequest(CheckpointManifest, given.manifest, "import a checkpoint");
    const from = { ...given, manifest };
    const { n } = manifest;
    assertBelongs({ ...from, record });
    const store = new CheckpointStore(layout);
    if ((await store.find(n)) !== undefined) {
      throw new SandboxError("already_exists", `Cannot import checkpoint ${n} of sandbox ${record.id}: it is here`, {
        details: { sandboxId: record.id, checkpoint: n },
      });
    }
    await assertMachineFits(context, driver, manifest, ofCheckpoint(n));
    using stop = firstToAbort(signal, killed);
    const step = (name: string): Promise<void> => context.atStep(`import checkpoint: ${name}`, record.id);
    const at = layout.importingCheckpoint(n);
    const unpin = context.layers.pin(manifest.layers.map((layer) => layer.id));
    let isHere = false;
    try {
      await store.sweep();
      await mkdir(at.dir, { recursive: true, mode: 0o700 });
      await settleAll([
        store.adoptMemory(from.memoryDir, manifest, at),
        adoptOwner(store, from, at),
        ...manifest.layers.map((part) => importLayer({ context, from, template, signal: stop }, part)),
      ]);
      await step("parts");
      await store.publish(manifest, at);
      await syncFilesystem(layout.dir, stop);
      await step("verified");
      await context.layers.publish([], () => store.place(n));
      isHere = true;
      await step("placed");
    } finally {
      unpin();
      if (!isHere) {
        await removeTree(at.dir);
        await context.layers.collect();
      }
    }
  });
}

/** The archive is unpacked by a rollback. */
async function adoptOwner(
  store: CheckpointStore,
  { manifest, owner }: CheckpointImport,
  at: ReturnType<SandboxLife["parts"]["layout"]["importingCheckpoint"]>,
): Promise<void> {
  if (manifest.owner === undefined) return;
  if (owner !== undefined) await copyFile(owner, at.ownerFile, constants.COPYFILE_FICLONE);
  await store.verifyOwner(manifest, at);
}
