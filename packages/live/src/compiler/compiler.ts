import { ModuleGraph } from "../graph/module-graph.ts";
import { defaultCacheDir } from "../programs/bundle.ts";
import type { Sources } from "./app-sources.ts";
import { ArtifactCache, isIntact } from "./artifact-cache.ts";
import type { Artifact, Compilation, Diagnostic } from "./artifact.ts";
import { codeFrame, positionOf } from "./code-frame.ts";
import { maxSourceBytes, type CompiledModule, type CompileJob } from "./compile-job.ts";
import { CompilerPool, type CompilerPoolOptions } from "./compiler-pool.ts";
import { compilerId, sha256 } from "./identity.ts";

export interface CompilerOptions extends CompilerPoolOptions {
  /** `false` compiles everything again and keeps nothing on disk. */
  cache?: boolean;
}

const defaultTimeoutMs = 30_000;

/** Compiles the modules of apps in processes of their own, and only what no one has compiled before. */
export class Compiler implements AsyncDisposable {
  readonly #pool: CompilerPool;
  readonly #cache: ArtifactCache | undefined;
  /** The source of an artifact, so that what did not change needs no checksum. */
  readonly #sourceOf = new WeakMap<Artifact, string>();
  #writing: Promise<unknown> = Promise.resolve();

  constructor(options: CompilerOptions = {}) {
    this.#pool = new CompilerPool(options);
    if (options.cache !== false) this.#cache = new ArtifactCache(options.cacheDir ?? defaultCacheDir);
  }

  /**
   * Compiles what differs from the modules before, and checks the imports of the whole app. Mistakes are in
   * `diagnostics`; it rejects only if no compiler can be started.
   */
  async compile(
    sources: Sources,
    before: ReadonlyMap<string, Artifact> = new Map(),
    timeoutMs = defaultTimeoutMs,
  ): Promise<Compilation> {
    const startedAt = performance.now();
    const found = new Map<string, CompiledModule>();
    const jobs: CompileJob[] = [];
    const misses: CompileJob[] = [];
    for (const [module, source] of sources) {
      const known = before.get(module);
      if (known !== undefined && this.#isOf(known, source)) found.set(module, { artifact: known, diagnostics: [] });
      else if (source.length > maxSourceBytes) found.set(module, { diagnostics: [tooLarge(module)] });
      else misses.push({ module, source });
    }
    // A process for the next edit is there, even if everything is found on disk.
    void this.#pool.warm().catch(() => undefined);
    const cached = await Promise.all(misses.map(async ({ module, source }) => this.#cache?.read(module, source)));
    for (const [at, job] of misses.entries()) {
      const hit = cached[at];
      if (hit === undefined) jobs.push(job);
      else found.set(job.module, hit);
    }
    const results = jobs.length === 0 ? [] : await this.#pool.compile(jobs, timeoutMs);
    for (const [at, job] of jobs.entries()) found.set(job.module, this.#accept(job, results[at]));
    return compilationOf(sources, found, new Set(jobs.map(({ module }) => module)), startedAt);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#pool[Symbol.asyncDispose]();
    await this.#writing;
  }

  #isOf(artifact: Artifact, source: string): boolean {
    if (artifact.compiler !== compilerId) return false;
    if (this.#sourceOf.get(artifact) === source) return true;
    if (artifact.sourceSha256 !== sha256(source)) return false;
    this.#sourceOf.set(artifact, source);
    return true;
  }

  /** A compiler process is not trusted to answer for the module that it was given. */
  #accept({ module, source }: CompileJob, compiled: CompiledModule | undefined): CompiledModule {
    if (compiled === undefined || !isIntact(compiled, module, source)) {
      const message = `Cannot compile ${module}: the compiler answered for another module`;
      return { diagnostics: [{ ...start(module), severity: "error", kind: "resource", message, frame: "" }] };
    }
    if (compiled.artifact !== undefined) {
      this.#sourceOf.set(compiled.artifact, source);
      this.#writing = Promise.all([this.#writing, this.#cache?.write(module, source, compiled)]);
    }
    return compiled;
  }
}

function compilationOf(
  sources: Sources,
  found: ReadonlyMap<string, CompiledModule>,
  compiledNow: ReadonlySet<string>,
  startedAt: number,
): Compilation {
  const artifacts: Artifact[] = [];
  const diagnostics: Diagnostic[] = [];
  const compiled: string[] = [];
  const cached: string[] = [];
  for (const module of sources.keys()) {
    const result = found.get(module);
    diagnostics.push(...(result?.diagnostics ?? []));
    if (result?.artifact === undefined) continue;
    artifacts.push(result.artifact);
    (compiledNow.has(module) ? compiled : cached).push(module);
  }
  if (!hasErrors(diagnostics)) diagnostics.push(...importProblems(artifacts, sources));
  const durationMs = performance.now() - startedAt;
  return { ok: !hasErrors(diagnostics), artifacts, diagnostics, compiled, cached, durationMs };
}

export const hasErrors = (diagnostics: readonly Diagnostic[]): boolean =>
  diagnostics.some(({ severity }) => severity === "error");

/** Imports of modules or names that do not exist, at the place of the import. */
export function importProblems(artifacts: Iterable<Artifact>, sources: Sources): Diagnostic[] {
  return new ModuleGraph(artifacts).problems().map(({ importer, specifier, message }) => {
    const source = sources.get(importer);
    const offset =
      source === undefined ? -1 : Math.max(source.indexOf(`"${specifier}"`), source.indexOf(`'${specifier}'`));
    const place = source === undefined || offset === -1 ? undefined : positionOf(source, offset);
    return {
      file: importer,
      ...(place ?? { line: 1, column: 1 }),
      severity: "error",
      kind: "dependency",
      message: `Cannot import ${JSON.stringify(specifier)}: ${message}`,
      frame: source === undefined || place === undefined ? "" : codeFrame(source, place),
    };
  });
}

const start = (file: string) => ({ file, line: 1, column: 1 });

const tooLarge = (module: string): Diagnostic => ({
  ...start(module),
  severity: "error",
  kind: "resource",
  message: `Cannot compile ${module}: it is larger than ${maxSourceBytes / 1024 / 1024} MiB`,
  frame: "",
});
