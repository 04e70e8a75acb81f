import { constants, copyFile, mkdir } from "node:fs/promises";
import { syncFilesystem } from "@atoll/host";
import { CheckpointManifest, ImportedRecord, SandboxError, type LayerPart } from "@atoll/protocol";
import { CheckpointStore } from "../checkpoints/checkpoint-store.ts";
import { assertMachineFits, ofCheckpoint } from "../checkpoints/verify-checkpoint.ts";
import type { EngineContext } from "../engine-context.ts";
import type { EgressHandler } from "../guest/egress-relay.ts";
import { RecordKeeper } from "../lifecycle/record-keeper.ts";
import { Sandbox } from "../sandbox.ts";
import { parseRequest } from "../support/parse-request.ts";
import { settleAll } from "../support/settle-all.ts";
import type { Template } from "../templates/template.ts";
import { unpackOwner } from "./checkpoint-files.ts";
import { findTemplate } from "./machine-needs.ts";

/** A checkpoint from another machine, and the files that belong to it. */
export interface CheckpointImport {
  manifest: CheckpointManifest;
  /**
   * A directory with the files of the memory image, named as in the manifest. It must be on the filesystem of the data
   * directory, and is moved from there.
   */
  memoryDir: string;
  /** The archive of the owner's files, if the manifest names it. */
  owner?: string | undefined;
  /** The archives of those layers that are not here. */
  layers: { part: LayerPart; archive: string }[];
}

/** A sandbox from another machine. */
export interface SandboxImport extends CheckpointImport {
  record: ImportedRecord;
}

export interface ImportOptions {
  signal?: AbortSignal;
  /** The handler as for `create`. */
  onEgress?: EgressHandler | undefined;
}

interface PendingAcquisition<From extends CheckpointImport = SandboxImport> {
  context: EngineContext;
  from: From;
  template: Template;
  signal: AbortSignal;
}

/**
 * Makes a paused sandbox of what comes from another machine. Everything is verified; when this rejects, nothing is left
 * of it here. The record is written last, so that after a crash the files have no owner, and are removed when the data
 * directory is opened again.
 */
export async function importSandbox(
  context: EngineContext,
  given: SandboxImport,
  { signal = new AbortController().signal, onEgress }: ImportOptions = {},
): Promise<Sandbox> {
  const record = parseRequest(ImportedRecord, given.record, "import a sandbox");
  const manifest = parseRequest(CheckpointManifest, given.manifest, "import a sandbox");
  const from = { ...given, record, manifest };
  const { id } = record;
  assertBelongs(from);
  signal.throwIfAborted();
  if (context.lives.has(id) || context.importing.has(id)) {
    throw new SandboxError("already_exists", `Cannot import sandbox ${id}: it is here already`, {
      details: { sandboxId: id },
    });
  }
  context.importing.add(id);
  const unpin = context.layers.pin(manifest.layers.map((layer) => layer.id));
  try {
    const driver = context.driver(record.driver);
    const template = await findTemplate(context, manifest.template, ofCheckpoint(manifest.n));
    await assertMachineFits(context, driver, manifest, ofCheckpoint(manifest.n));
    await importParts({ context, from, template, signal });
    const stored = { ...record, version: 1, state: "paused", checkpoint: manifest.n } as const;
    const keeper = new RecordKeeper(stored, context.store, context.events.emit);
    await keeper.begin();
    const life = context.addLife(keeper, { driver, template, onEgress });
    await context.atStep("import: recorded", id);
    return new Sandbox(life);
  } catch (error) {
    await context.store.remove(id);
    unpin();
    await context.layers.collect();
    throw error;
  } finally {
    context.importing.delete(id);
    unpin();
  }
}

/** Checks that the parts are those of one sandbox, and that all layers that are not here are given. */
export function assertBelongs({
  record,
  manifest,
  layers,
}: Pick<SandboxImport, "manifest" | "layers"> & {
  record: Pick<ImportedRecord, "id" | "driver" | "template">;
}): void {
  const refuse = (because: string): SandboxError =>
    new SandboxError("invalid_argument", `Cannot import sandbox ${record.id}: ${because}`);
  if (manifest.sandboxId !== record.id) throw refuse(`the manifest belongs to sandbox ${manifest.sandboxId}`);
  if (manifest.driver !== record.driver) throw refuse(`it was saved by driver ${manifest.driver}`);
  if (manifest.template !== record.template) throw refuse(`it was saved on template ${manifest.template}`);
  const known = new Map(manifest.layers.map((part) => [part.id, part.sha256]));
  const foreign = layers.find(({ part }) => known.get(part.id) !== part.sha256);
  if (foreign !== undefined) throw refuse(`layer ${foreign.part.id} is not in its manifest`);
}

/** Imports everything but the record. */
async function importParts({ context, from, template, signal }: PendingAcquisition): Promise<void> {
  const { sandboxId: id, n } = from.manifest;
  const layout = context.layout.sandbox(id);
  const store = new CheckpointStore(layout);
  await context.store.remove(id);
  await mkdir(layout.checkpoint(n).dir, { recursive: true, mode: 0o700 });
  await context.atStep("import: begun", id);
  await settleAll([
    store.adoptMemory(from.memoryDir, from.manifest),
    importOwner(context, from, signal),
    ...from.manifest.layers.map((part) => importLayer({ context, from, template, signal }, part)),
  ]);
  await syncFilesystem(layout.dir, signal);
  await context.atStep("import: parts", id);
  await context.layers.publish([], () => store.publish(from.manifest));
  await context.atStep("import: manifest", id);
}

/** Unpacks the owner's files into the sandbox's own directory, and keeps the archive with the checkpoint. */
async function importOwner(
  context: EngineContext,
  { manifest, owner }: SandboxImport,
  signal: AbortSignal,
): Promise<void> {
  if (manifest.owner === undefined) return;
  const layout = context.layout.sandbox(manifest.sandboxId);
  await mkdir(layout.ownerDir, { mode: 0o700 });
  await unpackOwner(context, { manifest, owner }, layout.ownerDir, signal);
  if (owner !== undefined) await copyFile(owner, layout.checkpoint(manifest.n).ownerFile, constants.COPYFILE_FICLONE);
}

export async function importLayer(
  { context, from, template, signal }: PendingAcquisition<CheckpointImport>,
  part: LayerPart,
): Promise<void> {
  const given = from.layers.find((layer) => layer.part.id === part.id);
  if (given === undefined) return context.layers.verify([part], signal);
  await context.layers.import(part, given.archive, { trees: template.trees.length, signal });
}
