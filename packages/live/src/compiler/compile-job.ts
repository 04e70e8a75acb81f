import { z } from "zod";
import { Artifact, Diagnostic } from "./artifact.ts";

/** More than the largest module with its code and its source map needs. */
export const maxJobBytes = 64 * 1024 * 1024;
/** A larger source is refused before it is compiled. */
export const maxSourceBytes = 8 * 1024 * 1024;

/** What a compiler process gets. */
export interface CompileJob {
  module: string;
  source: string;
}

/** What it answers. A module with errors has no artifact. */
export const CompiledModule = z.strictObject({
  artifact: Artifact.optional(),
  diagnostics: z.array(Diagnostic),
});
export type CompiledModule = z.infer<typeof CompiledModule>;
