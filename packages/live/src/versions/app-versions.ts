import { SandboxError } from "@atoll/protocol";
import type { Artifact, Diagnostic } from "../compiler/artifact.ts";
import { sourceOf } from "../compiler/source-places.ts";
import { bounded, type Generation, type History, type ModuleVersion } from "./history.ts";
import { lineDiff } from "./line-diff.ts";
import { objectKey, type VersionStore } from "./version-store.ts";

/** The number of diagnostics that are kept of a generation; more say nothing new. */
const maxDiagnostics = 100;

/** The modules of an app at one time. */
export type Modules = ReadonlyMap<string, Artifact>;

/** A generation of an app, for people and programs. */
export interface GenerationInfo extends Generation {
  isCurrent: boolean;
  isLastGood: boolean;
  /** The modules that differ from the generation that was made before it. */
  changed: string[];
}

export interface ModuleHistory {
  module: string;
  /** The version that runs; `undefined` if the module is not part of the app now. */
  current: number | undefined;
  /** The newest first. */
  versions: ModuleVersion[];
}

export interface ModuleDiff {
  module: string;
  /** `undefined` on the side that does not have the module. */
  from: number | undefined;
  to: number | undefined;
  /** The sources in the unified format. */
  patch: string;
}

/**
 * The generations of an app and the versions of its modules. Changes are made in memory at once and stored behind, so
 * that no reload waits for the disk.
 */
export class AppVersions {
  readonly #store: VersionStore;
  readonly #onError: (error: unknown) => void;
  #history: History;
  #unsaved = new Map<string, Artifact>();
  #saving: Promise<void> = Promise.resolve();
  #isSavePlanned = false;
  #isRemoved = false;

  private constructor(store: VersionStore, history: History, onError: (error: unknown) => void) {
    this.#store = store;
    this.#history = history;
    this.#onError = onError;
  }

  /** `onError` gets what goes wrong while the history is stored; the app goes on without. */
  static async open(store: VersionStore, onError: (error: unknown) => void): Promise<AppVersions> {
    return new AppVersions(store, await store.load(), onError);
  }

  /** The number of the current generation; 0 if there was none yet. */
  get current(): number {
    return this.#history.current;
  }

  get lastGood(): number {
    return this.#history.lastGood;
  }

  /** The newest generation that held, other than this one. */
  goodBeside(number: number): number | undefined {
    const good = this.#history.generations.filter((each) => each.isGood && each.number !== number);
    return good.length === 0 ? undefined : Math.max(...good.map((each) => each.number));
  }

  /** The number that these modules have, or would get as a new generation. */
  numberOf(modules: Modules): number {
    return this.#find(modules)?.number ?? this.#history.lastNumber + 1;
  }

  /** Makes the modules the current generation. */
  use(modules: Modules, cause: Generation["cause"]): number {
    const at = new Date().toISOString();
    const known = this.#find(modules);
    const history = this.#history;
    const numbers: Record<string, number> = {};
    for (const artifact of modules.values()) numbers[artifact.module] = this.#addVersion(artifact, at);
    const number = known?.number ?? history.lastNumber + 1;
    if (known === undefined) {
      history.generations.push({ number, modules: numbers, at, cause, isGood: false });
      history.lastNumber = number;
    }
    history.current = number;
    this.#changed();
    return number;
  }

  /** The generation held: the app can go back to it later. */
  settle(number: number): void {
    const generation = this.#generation(number);
    if (generation === undefined) return;
    generation.isGood = true;
    delete generation.failure;
    this.#history.lastGood = number;
    this.#changed();
  }

  /** Keeps what was found in a generation. One that was never used has no entry. */
  attach(number: number, diagnostics: readonly Diagnostic[]): void {
    const generation = this.#generation(number);
    if (generation === undefined) return;
    generation.diagnostics = diagnostics.slice(0, maxDiagnostics);
    this.#changed();
  }

  /** The app left a generation by itself, for an earlier one. */
  leave(number: number, reason: string, to: number): void {
    const generation = this.#generation(number);
    if (generation !== undefined) {
      generation.isGood = false;
      generation.failure = reason;
    }
    this.#history.current = to;
    if (this.#history.lastGood === number) this.#history.lastGood = to;
    this.#changed();
  }

  async modulesOf(number: number): Promise<Modules> {
    const generation = this.#generation(number);
    if (generation === undefined) {
      const numbers = this.#history.generations.map((each) => each.number).join(", ");
      throw new SandboxError("not_found", `There is no generation ${number}`, {
        suggestion: `The generations that are kept: ${numbers || "none"}.`,
      });
    }
    const entries = Object.entries(generation.modules).map(
      async ([module, version]) => [module, await this.artifact(module, version)] as const,
    );
    return new Map(await Promise.all(entries));
  }

  async artifact(module: string, version: number): Promise<Artifact> {
    const versions = this.#history.modules[module]?.versions ?? [];
    const found = versions.find(({ number }) => number === version);
    if (found === undefined) {
      const numbers = versions.map(({ number }) => number).join(", ");
      throw new SandboxError("not_found", `There is no version ${version} of ${module}`, {
        suggestion: `The versions that are kept: ${numbers || "none"}.`,
      });
    }
    const key = objectKey({ module, ...found });
    return this.#unsaved.get(key) ?? this.#store.read(key);
  }

  /** The generations that are kept, the newest first. */
  list(): GenerationInfo[] {
    const { current, lastGood, generations } = this.#history;
    return generations
      .map((generation, at) => ({
        ...generation,
        isCurrent: generation.number === current,
        isLastGood: generation.number === lastGood,
        changed: changedModules(generations[at - 1]?.modules ?? {}, generation.modules),
      }))
      .toReversed();
  }

  history(module: string): ModuleHistory {
    const known = this.#history.modules[module];
    if (known === undefined) {
      throw new SandboxError("not_found", `There is no version of ${module}`, {
        suggestion: `The modules that have versions: ${Object.keys(this.#history.modules).join(", ") || "none"}.`,
      });
    }
    return { module, current: this.currentVersion(module), versions: known.versions.toReversed() };
  }

  /** The version of a module that runs; `undefined` if the module is not part of the app now. */
  currentVersion(module: string): number | undefined {
    return this.#generation(this.#history.current)?.modules[module];
  }

  /** What differs between two generations. */
  async diff(from: number, to: number): Promise<ModuleDiff[]> {
    const [before, after] = [this.#generation(from)?.modules, this.#generation(to)?.modules];
    if (before === undefined || after === undefined) {
      await this.modulesOf(before === undefined ? from : to);
      return [];
    }
    return Promise.all(
      changedModules(before, after).map((module) => this.moduleDiff(module, before[module], after[module])),
    );
  }

  async moduleDiff(module: string, from: number | undefined, to: number | undefined): Promise<ModuleDiff> {
    const source = async (version: number | undefined): Promise<string> =>
      version === undefined ? "" : sourceOf(await this.artifact(module, version));
    return { module, from, to, patch: lineDiff(await source(from), await source(to)) };
  }

  /** Resolves when everything is stored. */
  async flush(): Promise<void> {
    await this.#saving;
  }

  /** Forgets everything, also on disk. */
  async remove(): Promise<void> {
    // What ends later, such as a check of types, must not store anything while the files are removed.
    this.#isRemoved = true;
    await this.#saving;
    await this.#store.remove();
  }

  #generation(number: number): Generation | undefined {
    return this.#history.generations.find((generation) => generation.number === number);
  }

  #find(modules: Modules): Generation | undefined {
    const numbers = new Map<string, number>();
    for (const { module, codeSha256 } of modules.values()) {
      const version = this.#history.modules[module]?.versions.find((each) => each.codeSha256 === codeSha256);
      if (version === undefined) return undefined;
      numbers.set(module, version.number);
    }
    return this.#history.generations.find(
      (generation) =>
        Object.keys(generation.modules).length === numbers.size &&
        [...numbers].every(([module, number]) => generation.modules[module] === number),
    );
  }

  /** The same code is the same version. Its source may differ in what is not code, and then the newer one counts. */
  #addVersion(artifact: Artifact, at: string): number {
    const { module, sourceSha256, codeSha256, compiler, dependencies, findings } = artifact;
    const known = (this.#history.modules[module] ??= { lastNumber: 0, versions: [] });
    const version = known.versions.find((each) => each.codeSha256 === codeSha256);
    if (version?.sourceSha256 === sourceSha256) return version.number;
    this.#unsaved.set(objectKey(artifact), artifact);
    if (version !== undefined) {
      Object.assign(version, { sourceSha256, findings });
      return version.number;
    }
    known.lastNumber += 1;
    known.versions.push({ number: known.lastNumber, sourceSha256, codeSha256, compiler, at, dependencies, findings });
    return known.lastNumber;
  }

  #changed(): void {
    this.#history = bounded(this.#history);
    if (this.#isSavePlanned || this.#isRemoved) return;
    this.#isSavePlanned = true;
    this.#saving = this.#saving.then(() => this.#save());
  }

  async #save(): Promise<void> {
    this.#isSavePlanned = false;
    const added = new Map(this.#unsaved);
    try {
      await this.#store.save(structuredClone(this.#history), added);
      for (const key of added.keys()) this.#unsaved.delete(key);
    } catch (error) {
      // What is no longer part of the history is not stored later either.
      const kept = new Set(
        Object.entries(this.#history.modules).flatMap(([module, { versions }]) =>
          versions.map((version) => objectKey({ module, ...version })),
        ),
      );
      for (const key of this.#unsaved.keys()) if (!kept.has(key)) this.#unsaved.delete(key);
      this.#onError(error);
    }
  }
}

function changedModules(before: Readonly<Record<string, number>>, after: Readonly<Record<string, number>>): string[] {
  const modules = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...modules].filter((module) => before[module] !== after[module]).toSorted();
}
