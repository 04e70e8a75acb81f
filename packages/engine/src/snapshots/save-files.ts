import { rm } from "node:fs/promises";
import { join } from "node:path";
import { SandboxError, TemplateName } from "@atoll/protocol";
import type { EngineContext } from "../engine-context.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { removeTree } from "../store/remove-tree.ts";
import { isHostTemplateName } from "../templates/host-template.ts";
import { copyFiles } from "./copy-files.ts";
import { guestDirectory } from "./guest-directory.ts";
import { inScratch } from "./in-scratch.ts";

export interface SaveFilesOptions {
  signal: AbortSignal;
  /** Rejects with `limit_reached` when the archive is larger. */
  maxBytes?: number;
}

/** The description of the archive of a sandbox's files. It has nothing of the machine that the sandbox was on. */
export interface SavedFiles {
  /** The template below the files, by the name that it has on every server. */
  template: TemplateName;
  /** The exact name of that template on this machine. */
  base: TemplateName;
  /** The number of trees of the template. */
  trees: number;
  sizeBytes: number;
  sha256: string;
}

/**
 * Writes what a sandbox has written over its template into a new file. The sandbox continues; when this rejects, there
 * is no file.
 */
export async function saveFiles(
  context: EngineContext,
  life: SandboxLife,
  toPath: string,
  { signal, maxBytes = Infinity }: SaveFilesOptions,
): Promise<SavedFiles & { frozenMs: number }> {
  signal.throwIfAborted();
  const { template: base } = life.record;
  const template = isHostTemplateName(base) ? TemplateName.parse("host") : base;
  const trees = life.parts.template.trees.length;
  return inScratch(context.layout, async (scratch) => {
    const { dir, frozenMs } = await life.inTurn((killed) => copyFiles(context, life, scratch, { signal, killed }));
    const uppers = Array.from({ length: trees }, (_, tree) => join(dir, String(tree), "upper"));
    await removeTree(join(dir, "0", "upper", guestDirectory));
    const archive = await context.packer.write(uppers, toPath, signal);
    if (archive.sizeBytes <= maxBytes) return { template, base, trees, ...archive, frozenMs };
    await rm(toPath);
    throw new SandboxError("limit_reached", `Cannot save the files of sandbox ${life.record.id}`, {
      suggestion: `They take ${archive.sizeBytes} bytes, and ${maxBytes} are allowed.`,
      details: { sizeBytes: archive.sizeBytes, maxBytes },
    });
  });
}
