import { readFile } from "node:fs/promises";
import { basename, resolve } from "node:path";
import { Script } from "node:vm";
import { ModuleGraph } from "../graph/module-graph.ts";
import { defaultCacheDir } from "../programs/bundle.ts";
import { AppSources } from "./app-sources.ts";
import { ArtifactCache, type CacheLimits } from "./artifact-cache.ts";
import { Artifact, type Compilation } from "./artifact.ts";
import { Compiler, type CompilerOptions } from "./compiler.ts";
import { compilerId, sha256 } from "./identity.ts";

export interface CompileOptions extends CompilerOptions {
  /** 30 s by default. */
  timeoutMs?: number;
}

/** Compiles all modules in the folder of an app. Mistakes are in the result. */
export function compileApp(folder: string, options: CompileOptions = {}): Promise<Compilation> {
  return incrementalCompile(folder, [], options);
}

/** Compiles what differs from artifacts of the same app; these are in the result, too. */
export async function incrementalCompile(
  folder: string,
  before: Iterable<Artifact>,
  options: CompileOptions = {},
): Promise<Compilation> {
  await using compiler = new Compiler(options);
  const sources = await new AppSources(resolve(folder)).read({});
  return await compiler.compile(sources, new Map([...before].map((each) => [each.module, each])), options.timeoutMs);
}

/** Compiles one file by itself: what it imports from other modules is not checked. */
export async function compileFile(path: string, options: CompileOptions = {}): Promise<Compilation> {
  await using compiler = new Compiler(options);
  const source = await readFile(path, "utf8");
  const { diagnostics, ...compilation } = await compiler.compile(
    new Map([[basename(path), source]]),
    undefined,
    options.timeoutMs,
  );
  const own = diagnostics.filter(({ kind }) => kind !== "dependency");
  return { ...compilation, diagnostics: own, ok: own.every(({ severity }) => severity !== "error") };
}

export interface ArtifactProblem {
  module: string;
  message: string;
}

/** A module of more code than this is not loaded. */
const maxCodeBytes = 32 * 1024 * 1024;

/**
 * Checks artifacts before they are loaded: their form and checksums, whether their code can be parsed, and whether they
 * export what the others import. Nothing of them is run.
 */
export function validateArtifacts(artifacts: Iterable<unknown>): ArtifactProblem[] {
  const problems: ArtifactProblem[] = [];
  const intact: Artifact[] = [];
  for (const given of artifacts) {
    const parsed = Artifact.safeParse(given);
    if (!parsed.success) {
      const { module } = (given ?? {}) as { module?: unknown };
      const [issue] = parsed.error.issues;
      const message = `it is no artifact: ${issue?.path.join(".") ?? ""}: ${issue?.message ?? ""}`;
      problems.push({ module: typeof module === "string" ? module : "?", message });
      continue;
    }
    const message = problemOf(parsed.data);
    if (message === undefined) intact.push(parsed.data);
    else problems.push({ module: parsed.data.module, message });
  }
  if (problems.length > 0) return problems;
  return new ModuleGraph(intact).problems().map(({ importer, specifier, message }) => ({
    module: importer,
    message: `it imports ${specifier}, but ${message}`,
  }));
}

function problemOf({ module, code, codeSha256, compiler }: Artifact): string | undefined {
  if (module.startsWith("/") || module.split("/").includes("..")) return "its path leads out of the app";
  if (compiler !== compilerId) return `it was made by ${compiler}, and not by ${compilerId}`;
  if (code.length > maxCodeBytes) return `its code is larger than ${maxCodeBytes / 1024 / 1024} MiB`;
  if (sha256(code) !== codeSha256) return "its code does not have the checksum that it names";
  try {
    return new Script(code, { filename: module }) instanceof Script ? undefined : "its code is no script";
  } catch (error) {
    return `its code cannot be parsed: ${error instanceof Error ? error.message : String(error)}`;
  }
}

/** Removes artifacts on disk that are old or too many. Idempotent. Returns what is left. */
export function cleanupArtifacts(
  limits: CacheLimits & { cacheDir?: string } = {},
): Promise<{ files: number; bytes: number }> {
  return new ArtifactCache(limits.cacheDir ?? defaultCacheDir).clean(limits);
}
