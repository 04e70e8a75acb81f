import { Finding } from "@atoll/guard";
import { z } from "zod";

/** A use of another module. `evaluation` uses run while the importer is evaluated, so a change re-evaluates it too. */
export const Dependency = z.strictObject({
  /** The specifier as the source has it. */
  specifier: z.string(),
  /** The id of a module of the app; `null` for one of Node or of a package, which is loaded natively. */
  module: z.string().nullable(),
  kind: z.enum(["static", "dynamic", "type", "evaluation"]),
  /** Names that are imported; `*` for the namespace. */
  names: z.array(z.string()),
});
export type Dependency = z.infer<typeof Dependency>;

/**
 * One compiled module. `code` is the source of an async generator function of `($import, $export, $meta)`: it registers
 * getters for its exports, yields once, and then runs the module's body. Uses of imports read
 * `$import[i].current.name`, so that they find the newest code.
 */
export const Artifact = z.strictObject({
  /** The path of the source from the folder of the app, with forward slashes: `src/counter.ts`. */
  module: z.string(),
  code: z.string(),
  /** Source map, version 3, as JSON. */
  map: z.string(),
  sourceSha256: z.string(),
  codeSha256: z.string(),
  dependencies: z.array(Dependency),
  exports: z.array(z.string()),
  /** Modules of the app whose names are passed on by `export *`. */
  starExports: z.array(z.string()),
  /** What the scan of the source found. */
  findings: z.array(Finding),
  /** Names and versions of the compiler and its transforms. */
  compiler: z.string(),
});
export type Artifact = z.infer<typeof Artifact>;

export const Diagnostic = z.strictObject({
  file: z.string(),
  /** The line number, which starts at 1. */
  line: z.int(),
  column: z.int(),
  severity: z.enum(["error", "warning"]),
  /** `resource` is a module that the compiler did not finish within its limits. */
  kind: z.enum(["syntax", "type", "dependency", "scan", "resource"]),
  code: z.string().optional(),
  message: z.string(),
  /** The lines around it, with a marker under the place. */
  frame: z.string(),
});
export type Diagnostic = z.infer<typeof Diagnostic>;

export interface Compilation {
  ok: boolean;
  artifacts: Artifact[];
  diagnostics: Diagnostic[];
  /** Modules that were compiled, and those whose artifact came from the cache. */
  compiled: string[];
  cached: string[];
  durationMs: number;
}
