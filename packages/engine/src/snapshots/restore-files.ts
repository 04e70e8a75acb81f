import { lstat, mkdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { syncFilesystem } from "@atoll/host";
import { SandboxError, type LayerPart } from "@atoll/protocol";
import { writeFirstLayers } from "../checkpoints/first-layers.ts";
import { filesLayerId } from "../checkpoints/layer-library.ts";
import type { UnpackOptions } from "../checkpoints/tree-packer.ts";
import type { EngineContext } from "../engine-context.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { overrunBytes } from "../limits/disk-guard.ts";
import { leastEntryBytes } from "../limits/disk-usage.ts";
import { removeTree } from "../store/remove-tree.ts";
import { LayerFlattener } from "./copy-files.ts";
import { guestDirectory } from "./guest-directory.ts";
import { inScratch } from "./in-scratch.ts";
import type { SavedFiles } from "./save-files.ts";

/** The files that a sandbox begins with: an archive that `saveFiles`, or an untrusted client, has made. */
export interface FilesSource extends Omit<SavedFiles, "template"> {
  /** Called for the archive when these files are not here yet. */
  archive: () => Promise<string>;
}

/** An archive to check. */
export type FilesArchive = Omit<FilesSource, "archive" | "base"> & { archive: string };

export interface CheckFilesOptions {
  signal: AbortSignal;
  maxBytes?: number;
}

type Bounds = Pick<UnpackOptions, "mostEntries" | "signal">;

/**
 * Unpacks saved files into layers below what the sandbox will write, before its first start, and returns these layers.
 * All sandboxes that are made of the same files over the same template share them. When it rejects, the sandbox cannot
 * be used.
 */
export async function restoreFilesFromArchive(
  context: EngineContext,
  life: SandboxLife,
  files: FilesSource,
  signal: AbortSignal,
): Promise<LayerPart[]> {
  const { layout, template } = life.parts;
  assertFits(life, files);
  const mostEntries = entriesWithin(life.record.limits.diskBytes);
  if (template.name !== files.base) {
    await unpackFitted(context, life, { ...files, archive: await files.archive() }, { mostEntries, signal });
    return [];
  }
  const { trees, sizeBytes, sha256 } = files;
  const part: LayerPart = { id: filesLayerId(sha256), sizeBytes, sha256 };
  const unpin = context.layers.pin([part.id]);
  try {
    if (!(await context.layers.has(part))) {
      await context.layers.import(part, await files.archive(), { trees, mostEntries, signal });
      // Other sandboxes will find the layer here, and its archive may be gone by then.
      await syncFilesystem(context.layout.sealedDir, signal);
    }
    await assertNoGuest(context.layers.upper(part.id, 0));
    await writeFirstLayers(layout, [part]);
    return [part];
  } finally {
    unpin();
  }
}

/**
 * Rejects with `unrestorable` unless `restoreFilesFromArchive` accepts the archive, and with `limit_reached` when it
 * takes more than `maxBytes` on a disk. Leaves nothing.
 */
export async function checkFiles(
  context: EngineContext,
  files: FilesArchive,
  { signal, maxBytes }: CheckFilesOptions,
): Promise<void> {
  await inScratch(context.layout, async (scratch) => {
    await unpack(context, files, scratch, { mostEntries: entriesWithin(maxBytes), signal });
    await assertNoGuest(join(scratch, "0", "upper"));
  });
}

function assertFits({ record, parts }: SandboxLife, { sizeBytes, trees }: FilesSource): void {
  const { diskBytes } = record.limits;
  if (sizeBytes > diskBytes) {
    throw new SandboxError("limit_reached", `Cannot create a sandbox of ${sizeBytes} bytes of files`, {
      suggestion: `Its limit is ${diskBytes} (limits.diskBytes): raise it.`,
      details: { sizeBytes, diskBytes },
    });
  }
  const { name, trees: own } = parts.template;
  if (trees === own.length) return;
  throw new SandboxError("unrestorable", `Cannot use these files over template ${name}`, {
    suggestion: `They have ${trees} trees, the template has ${own.length}: use the template that they were made over.`,
    details: { template: name, trees, ofTemplate: own.length },
  });
}

/** Returns as many entries as a sandbox with this limit can have made before it is ended. */
function entriesWithin(bytes = Number.MAX_SAFE_INTEGER / 2): number {
  return Math.floor(overrunBytes(bytes) / leastEntryBytes);
}

/** A sandbox must have the guest of this server, so the files must not have one. */
async function assertNoGuest(root: string): Promise<void> {
  const found = await lstat(join(root, guestDirectory)).catch(() => undefined);
  if (found !== undefined) throw new SandboxError("unrestorable", "Cannot use the files: they contain a guest");
}

async function unpack(
  { packer }: EngineContext,
  { archive, trees, sizeBytes, sha256 }: FilesArchive,
  target: string,
  bounds: Bounds,
): Promise<void> {
  const into = Array.from({ length: trees }, (_, tree) => join(target, String(tree), "upper"));
  for (const dir of into) await mkdir(dir, { recursive: true });
  await packer.unpack(archive, into, { expected: { sizeBytes, sha256 }, part: "the files", ...bounds });
}

/**
 * Another machine's host files may lack what was hidden in these files, and a whiteout that hides nothing would be
 * listed. So this sandbox has a copy of its own.
 */
async function unpackFitted(
  context: EngineContext,
  life: SandboxLife,
  files: FilesArchive,
  bounds: Bounds,
): Promise<void> {
  const { layout, template } = life.parts;
  await inScratch(context.layout, async (scratch) => {
    const from = join(scratch, "from");
    await unpack(context, files, from, bounds);
    await assertNoGuest(join(from, "0", "upper"));
    const flat = new LayerFlattener(context, template, scratch, bounds.signal);
    await flat.prepare();
    await flat.begin(template.trees.map((_, tree) => join(from, String(tree), "upper")));
    await removeTree(layout.layersDir);
    await rename(flat.dir, layout.layersDir);
  });
}
