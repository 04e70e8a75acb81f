import { AppSources, type SourceChange, type Sources } from "../compiler/app-sources.ts";
import { importProblems, type Compiler } from "../compiler/compiler.ts";
import { sourceOf, SourcePlaces } from "../compiler/source-places.ts";
import type { LiveEventBody, ReloadCause } from "../events/live-event.ts";
import type { AppVersions, Modules } from "../versions/app-versions.ts";
import type { AppConfig } from "./app-options.ts";
import { summarizeErrors } from "./describe.ts";
import { ReloadFailed } from "./reload-failed.ts";

export interface AppCodeParts {
  id: string;
  folder: string;
  config: AppConfig;
  compiler: Compiler;
  versions: AppVersions;
  emit: (event: LiveEventBody) => void;
}

export type UseCause = ReloadCause | "start";

export interface Generation {
  number: number;
  modules: Modules;
}

/** The code that an app goes back to. */
export type RollbackTarget = { generation: number } | { module: string; version: number };

/** The code of an app: its sources, what they compile to, and its generations. */
export class AppCode {
  readonly #parts: AppCodeParts;
  readonly #sources: AppSources;
  /** Where compiled code is in the sources. */
  readonly places: SourcePlaces;
  /** The sources of the folder that a rollback set aside, by module. They come back when one of them is edited. */
  #setAside = new Map<string, string | undefined>();
  #settling: NodeJS.Timeout | undefined;

  constructor(parts: AppCodeParts) {
    this.#parts = parts;
    this.#sources = new AppSources(parts.folder);
    this.places = new SourcePlaces(parts.folder);
  }

  get versions(): AppVersions {
    return this.#parts.versions;
  }

  /**
   * Compiles what differs from `before`. Throws `ReloadFailed` with the diagnostics if there are errors. After a
   * rollback, a change of other files leaves the modules as they are that were rolled back.
   */
  async compile(change: SourceChange, before: Modules): Promise<Modules> {
    const { id, config, compiler, emit } = this.#parts;
    const folder = await this.#sources.read(change);
    const sources = change.paths === undefined ? folder : this.#withoutSetAside(folder, before);
    if (sources === folder) this.#setAside.clear();
    emit({ type: "compile.start", files: sources.size });
    const compilation = await compiler.compile(sources, before, config.compileTimeoutMs);
    const { ok, artifacts, diagnostics, compiled, cached, durationMs } = compilation;
    emit({ type: "compile.end", ok, compiled, cached: cached.length, durationMs, diagnostics });
    if (!ok) throw new ReloadFailed("compile", `Cannot compile ${id}: ${summarizeErrors(diagnostics)}`, diagnostics);
    return new Map(artifacts.map((artifact) => [artifact.module, artifact]));
  }

  /** The modules of a generation that an earlier manager has stored. The next reload takes what the folder has now. */
  async stored(generation: number): Promise<Modules> {
    await this.#sources.read({});
    return this.versions.modulesOf(generation);
  }

  /** The modules to go back to. Throws `ReloadFailed` if they do not fit together. */
  async rollbackTo(target: RollbackTarget, current: Modules): Promise<Modules> {
    let modules: Modules;
    if ("generation" in target) modules = await this.versions.modulesOf(target.generation);
    else modules = new Map(current).set(target.module, await this.versions.artifact(target.module, target.version));
    const diagnostics = importProblems(modules.values(), new Map());
    if (diagnostics.length === 0) return modules;
    const message = `Cannot roll back ${this.#parts.id}: ${summarizeErrors(diagnostics)}`;
    throw new ReloadFailed("compile", message, diagnostics);
  }

  /** Remembers which sources of the folder are not in use after a rollback. */
  setAside(before: Modules, after: Modules): void {
    for (const module of new Set([...before.keys(), ...after.keys()])) {
      if (before.get(module)?.codeSha256 === after.get(module)?.codeSha256) continue;
      this.#setAside.set(module, this.#sources.current.get(module));
    }
  }

  /** Counts a generation as good when the app has run for the time of a probation. */
  settleLater(number: number): void {
    this.stopSettling();
    this.#settling = setTimeout(() => this.versions.settle(number), this.#parts.config.probationMs);
    this.#settling.unref();
  }

  stopSettling(): void {
    clearTimeout(this.#settling);
  }

  #withoutSetAside(folder: Sources, before: Modules): Sources {
    if (this.#setAside.size === 0) return folder;
    for (const [module, source] of this.#setAside) if (folder.get(module) !== source) return folder;
    const sources = new Map(folder);
    for (const module of this.#setAside.keys()) {
      const artifact = before.get(module);
      if (artifact === undefined) sources.delete(module);
      else sources.set(module, sourceOf(artifact));
    }
    return sources;
  }
}
