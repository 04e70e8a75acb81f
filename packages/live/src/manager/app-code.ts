import { isSandboxError, SandboxError, type SecurityProfile } from "@atoll/protocol";
import { AppSources, type SourceChange, type Sources } from "../compiler/app-sources.ts";
import type { Artifact, Diagnostic } from "../compiler/artifact.ts";
import { validateArtifacts } from "../compiler/compile.ts";
import { hasErrors, importProblems, type Compiler } from "../compiler/compiler.ts";
import { sourceOf, SourcePlaces } from "../compiler/source-places.ts";
import type { LiveEventBody, ReloadCause, ReloadPhase } from "../events/live-event.ts";
import { gate } from "../security/code-gate.ts";
import type { TypeChecker } from "../types/type-checker.ts";
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
  profile: SecurityProfile;
  scan: Scan | undefined;
  types: TypeChecker;
  emit: (event: LiveEventBody) => void;
}

/**
 * Looks at the modules that are new in an app, before any of them is loaded. A finding of severity `error` refuses them
 * all.
 */
export type Scan = (
  app: { id: string; folder: string },
  artifacts: readonly Artifact[],
) => Promise<readonly Diagnostic[]>;

/** What an app is changed to: what its files have, the given sources, or modules that were compiled elsewhere. */
export type CodeChange = SourceChange | { artifacts: readonly unknown[] };

/** A check of types takes a processor for a while, so it waits until nothing was reloaded for so long. */
const typesPauseMs = 500;

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
  #checking: NodeJS.Timeout | undefined;

  constructor(parts: AppCodeParts) {
    this.#parts = parts;
    this.#sources = new AppSources(parts.folder);
    this.places = new SourcePlaces(parts.folder);
  }

  get versions(): AppVersions {
    return this.#parts.versions;
  }

  /** The modules after a change, checked. Throws `ReloadFailed` with the diagnostics if they cannot be used. */
  async next(change: CodeChange, before: Modules): Promise<Modules> {
    const modules = "artifacts" in change ? this.#given(change.artifacts, before) : await this.#compile(change, before);
    await this.#scan(modules, before);
    if (this.#parts.config.typeCheck === "gate") {
      const diagnostics = await this.checkTypes(this.versions.numberOf(modules), modules);
      if (hasErrors(diagnostics)) throw refused("compile", `Cannot compile ${this.#parts.id}`, diagnostics);
    }
    return modules;
  }

  /** Compares the types of a generation with the rules of the app. What is found belongs to its versions. */
  async checkTypes(number: number, modules: Modules): Promise<readonly Diagnostic[]> {
    const { id, folder, types, emit } = this.#parts;
    const { diagnostics, durationMs } = await types.check({ id, folder, modules });
    this.versions.attach(number, diagnostics);
    emit({ type: "types.end", ok: !hasErrors(diagnostics), generation: number, durationMs, diagnostics });
    return diagnostics;
  }

  /** Does the same behind a reload, when edits pause. Of several generations only the newest is checked. */
  checkTypesLater(number: number, modules: Modules): void {
    clearTimeout(this.#checking);
    if (this.#parts.config.typeCheck !== "warn") return;
    const check = (): void =>
      void this.checkTypes(number, modules).catch((error: unknown) => {
        // When everything ends, so does a check.
        if (isSandboxError(error))
          this.#parts.emit({ type: "log", level: "warn", text: `Types were not checked: ${error.message}` });
      });
    this.#checking = setTimeout(check, typesPauseMs);
    this.#checking.unref();
  }

  #given(artifacts: readonly unknown[], before: Modules): Modules {
    const [problem] = validateArtifacts(artifacts);
    const { id } = this.#parts;
    if (problem !== undefined) {
      throw new SandboxError("invalid_argument", `Cannot load ${problem.module} into ${id}: ${problem.message}`, {
        suggestion: "Give artifacts as compileApp returns them.",
      });
    }
    const modules = new Map(before);
    for (const artifact of artifacts as Artifact[]) modules.set(artifact.module, artifact);
    const diagnostics = importProblems(modules.values(), new Map());
    if (diagnostics.length > 0) throw refused("compile", `Cannot load artifacts into ${id}`, diagnostics);
    return modules;
  }

  async #scan(modules: Modules, before: Modules): Promise<void> {
    const { id, folder, profile, scan, emit } = this.#parts;
    const fresh = [...modules.values()].filter(
      ({ module, codeSha256 }) => before.get(module)?.codeSha256 !== codeSha256,
    );
    if (fresh.length === 0) return;
    const startedAt = performance.now();
    const { diagnostics: found, refusal } = gate(profile, id, fresh);
    const diagnostics = [...found, ...((await scan?.({ id, folder }, fresh)) ?? [])];
    if (diagnostics.length === 0) return;
    const ok = !hasErrors(diagnostics);
    const durationMs = performance.now() - startedAt;
    emit({ type: "scan.end", ok, modules: fresh.map(({ module }) => module), durationMs, diagnostics });
    if (!ok) throw refused("scan", `Cannot use the code of ${id}`, diagnostics, refusal);
  }

  /**
   * Compiles what differs from `before`. Throws `ReloadFailed` with the diagnostics if there are errors. After a
   * rollback, a change of other files leaves the modules as they are that were rolled back.
   */
  async #compile(change: SourceChange, before: Modules): Promise<Modules> {
    const { id, config, compiler, emit } = this.#parts;
    const folder = await this.#sources.read(change);
    const sources = change.paths === undefined ? folder : this.#withoutSetAside(folder, before);
    if (sources === folder) this.#setAside.clear();
    emit({ type: "compile.start", files: sources.size });
    const compilation = await compiler.compile(sources, before, config.compileTimeoutMs);
    const { ok, artifacts, diagnostics, compiled, cached, durationMs } = compilation;
    emit({ type: "compile.end", ok, compiled, cached: cached.length, durationMs, diagnostics });
    if (!ok) throw refused("compile", `Cannot compile ${id}`, diagnostics);
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
    if (diagnostics.length > 0) throw refused("compile", `Cannot roll back ${this.#parts.id}`, diagnostics);
    await this.#scan(modules, current);
    return modules;
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

  /** Ends what was to be done later. */
  stop(): void {
    this.stopSettling();
    clearTimeout(this.#checking);
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

const refused = (
  phase: ReloadPhase,
  what: string,
  diagnostics: readonly Diagnostic[],
  cause?: SandboxError,
): ReloadFailed => new ReloadFailed(phase, `${what}: ${summarizeErrors(diagnostics)}`, diagnostics, cause);
