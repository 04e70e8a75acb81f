import { readdir, readFile } from "node:fs/promises";
import { join, posix } from "node:path";
import { hasErrno } from "@atoll/host";
import { ModuleGraph } from "../graph/module-graph.ts";
import type { Artifact, Compilation, Diagnostic } from "./artifact.ts";
import { compileModule } from "./compile-module.ts";

const sourceFile = /\.(ts|mts|js|mjs|json)$/;
/** Not code of the app: packages, tests' output, and the files of tools. */
const skipped = new Set(["node_modules", ".git", "dist", "coverage"]);
const configFiles = new Set(["package.json", "package-lock.json", "tsconfig.json", "live.json"]);

/** The sources of an app by module id. */
export type Sources = Map<string, string>;

/** Whether a folder of an app can have code of it. */
export const isSourceFolder = (name: string): boolean => !skipped.has(name);

export interface SourceChange {
  /** Only these files are read again. */
  paths?: Iterable<string>;
  /** Used instead of what the files have. */
  sources?: Sources;
}

/** The sources of an app, as they were read last. */
export class AppSources {
  readonly #folder: string;
  #files: Sources = new Map();

  constructor(folder: string) {
    this.#folder = folder;
  }

  async read({ paths, sources }: SourceChange): Promise<Sources> {
    const files: Sources = new Map(paths === undefined ? [] : this.#files);
    for (const path of paths ?? (await this.#list(""))) {
      try {
        files.set(path, await readFile(join(this.#folder, path), "utf8"));
      } catch (error) {
        if (!hasErrno(error, "ENOENT", "ENOTDIR", "EISDIR")) throw error;
        files.delete(path);
      }
    }
    this.#files = files;
    return new Map([...files, ...(sources ?? [])]);
  }

  async #list(directory: string): Promise<string[]> {
    const entries = await readdir(join(this.#folder, directory), { withFileTypes: true });
    const lists = entries.map(async (entry) => {
      const path = posix.join(directory, entry.name);
      if (entry.isDirectory()) return isSourceFolder(entry.name) ? this.#list(path) : [];
      return entry.isFile() && isModule(path) ? [path] : [];
    });
    return (await Promise.all(lists)).flat();
  }
}

/** Whether a path, relative to the folder of an app, is a module of it. */
export const isModule = (path: string): boolean =>
  sourceFile.test(path) && !path.endsWith(".d.ts") && !configFiles.has(path) && !/\.test\.\w+$/.test(path);

/** Compiles what differs from the modules before, and checks the imports of the whole app. */
export async function compileSources(sources: Sources, before: ReadonlyMap<string, Artifact>): Promise<Compilation> {
  const startedAt = performance.now();
  const artifacts: Artifact[] = [];
  const diagnostics: Diagnostic[] = [];
  const compiled: string[] = [];
  const cached: string[] = [];
  for (const [module, source] of sources) {
    const result = compileModule(module, source, before.get(module));
    diagnostics.push(...result.diagnostics);
    if (result.artifact === undefined) continue;
    artifacts.push(result.artifact);
    (result.artifact === before.get(module) ? cached : compiled).push(module);
  }
  if (diagnostics.every(({ severity }) => severity !== "error")) {
    diagnostics.push(...importProblems(artifacts));
  }
  const ok = diagnostics.every(({ severity }) => severity !== "error");
  return { ok, artifacts, diagnostics, compiled, cached, durationMs: performance.now() - startedAt };
}

function importProblems(artifacts: readonly Artifact[]): Diagnostic[] {
  return new ModuleGraph(artifacts).problems().map(({ importer, specifier, message }) => ({
    file: importer,
    line: 1,
    column: 1,
    severity: "error",
    kind: "dependency",
    message: `Cannot import ${JSON.stringify(specifier)}: ${message}`,
    frame: "",
  }));
}
