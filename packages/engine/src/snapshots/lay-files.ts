import { mkdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { SandboxError } from "@atoll/protocol";
import { guestInside } from "../drivers/gvisor/oci-spec.ts";
import type { EngineContext } from "../engine-context.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { removeTree } from "../store/remove-tree.ts";
import { Flattening } from "./copy-files.ts";
import { inScratch } from "./in-scratch.ts";
import type { SavedFiles } from "./save-files.ts";

/** What a sandbox begins with: an archive that `saveFiles` has written, or anybody. */
export interface FilesSource extends Omit<SavedFiles, "template"> {
  archive: string;
}

/** Puts saved files where the sandbox will write over them. Before its first start; when it rejects, the sandbox is of no use. */
export async function layFiles(
  context: EngineContext,
  life: SandboxLife,
  files: FilesSource,
  signal: AbortSignal,
): Promise<void> {
  const { layout, template } = life.parts;
  assertFits(life, files);
  await unpack(context, files, layout.layersDir, signal);
  // It is ours, and a sandbox must have the one that this server speaks with.
  await removeTree(join(layout.layer(0).upper, guestInside.split("/")[1] ?? ""));
  // Another machine's own files may lack what was hidden in these, and a mark that hides nothing would show.
  if (template.name !== files.base) await fit(context, life, signal);
}

/** Rejects with `unrestorable` unless an archive is one that `layFiles` takes, and leaves nothing. */
export async function checkFiles(
  context: EngineContext,
  files: Omit<FilesSource, "base">,
  signal: AbortSignal,
): Promise<void> {
  await inScratch(context.layout, (scratch) => unpack(context, files, scratch, signal));
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
    suggestion: `They are of ${trees} trees, the template has ${own.length}: use the template that they were made over.`,
    details: { template: name, trees, ofTemplate: own.length },
  });
}

async function unpack(
  { packer }: EngineContext,
  { archive, trees, sizeBytes, sha256 }: Omit<FilesSource, "base">,
  target: string,
  signal: AbortSignal,
): Promise<void> {
  const into = Array.from({ length: trees }, (_, tree) => join(target, String(tree), "upper"));
  for (const dir of into) await mkdir(dir, { recursive: true });
  await packer.unpack(archive, into, { seal: { sizeBytes, sha256 }, part: "the files", signal });
}

async function fit(context: EngineContext, life: SandboxLife, signal: AbortSignal): Promise<void> {
  const { layout, template } = life.parts;
  await inScratch(context.layout, async (scratch) => {
    const flat = new Flattening(context, template, scratch, signal);
    await flat.prepare();
    await flat.begin(template.trees.map((_, tree) => layout.layer(tree).upper));
    await removeTree(layout.layersDir);
    await rename(flat.dir, layout.layersDir);
  });
}
