import { join } from "node:path";
import { SandboxError, type TemplateName } from "@atoll/protocol";
import type { Template } from "./template.ts";

/** A directory is used in place and must not change as long as the template is there; an archive is copied. */
export type RootfsSource = { directory: string } | { archive: string };

export interface ImportOptions {
  signal: AbortSignal;
  /** Most that the files of an archive may take together. */
  maxBytes?: number;
  maxEntries?: number;
}

export async function importRootfs(
  templatesDir: string,
  name: TemplateName,
  source: RootfsSource,
  options: ImportOptions,
): Promise<Template> {
  options.signal.throwIfAborted();
  throw new SandboxError("unsupported", `Cannot import ${JSON.stringify(source)} as ${join(templatesDir, name)}`);
}
