import { AppSources, type SourceChange } from "../compiler/app-sources.ts";
import type { Artifact } from "../compiler/artifact.ts";
import type { Compiler } from "../compiler/compiler.ts";
import type { LiveEventBody } from "../events/live-event.ts";
import type { AppConfig } from "./app-options.ts";
import { summarizeErrors } from "./describe.ts";
import { ReloadFailed } from "./reload-failed.ts";

export interface AppCodeParts {
  id: string;
  folder: string;
  config: AppConfig;
  compiler: Compiler;
  emit: (event: LiveEventBody) => void;
}

/** The modules of an app at one time. */
export type Modules = ReadonlyMap<string, Artifact>;

/** The code of an app: its sources, and what they compile to. */
export class AppCode {
  readonly #parts: AppCodeParts;
  readonly #sources: AppSources;

  constructor(parts: AppCodeParts) {
    this.#parts = parts;
    this.#sources = new AppSources(parts.folder);
  }

  /** Compiles what differs from `before`. Throws `ReloadFailed` with the diagnostics if there are errors. */
  async compile(change: SourceChange, before: Modules): Promise<Modules> {
    const { id, config, compiler, emit } = this.#parts;
    const sources = await this.#sources.read(change);
    emit({ type: "compile.start", files: sources.size });
    const compilation = await compiler.compile(sources, before, config.compileTimeoutMs);
    const { ok, artifacts, diagnostics, compiled, cached, durationMs } = compilation;
    emit({ type: "compile.end", ok, compiled, cached: cached.length, durationMs, diagnostics });
    if (!ok) throw new ReloadFailed("compile", `Cannot compile ${id}: ${summarizeErrors(diagnostics)}`, diagnostics);
    return new Map(artifacts.map((artifact) => [artifact.module, artifact]));
  }
}
