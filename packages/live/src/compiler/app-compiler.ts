import { readdir, readFile } from "node:fs/promises";
import { join, posix } from "node:path";
import { ModuleGraph } from "../graph/module-graph.ts";
import type { Artifact, Compilation, Diagnostic } from "./artifact.ts";
import { compileModule } from "./compile-module.ts";

const sourceFile = /\.(ts|mts|js|mjs|json)$/;
/** Not code of the app: packages, tests' output, and the files of tools. */
const skipped = new Set(["node_modules", ".git", "dist", "coverage"]);
const configFiles = new Set(["package.json", "package-lock.json", "tsconfig.json", "live.json"]);

/** The sources of an app by module id. */
export type Sources = Map<string, string>;

export async function readSources(folder: string): Promise<Sources> {
  const sources: Sources = new Map();
  const visit = async (directory: string): Promise<void> => {
    for (const entry of await readdir(join(folder, directory), { withFileTypes: true })) {
      const path = posix.join(directory, entry.name);
      if (entry.isDirectory() && !skipped.has(entry.name)) await visit(path);
      else if (entry.isFile() && isModule(path)) sources.set(path, await readFile(join(folder, path), "utf8"));
    }
  };
  await visit("");
  return sources;
}

const isModule = (path: string): boolean =>
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
