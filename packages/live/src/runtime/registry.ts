import { isBuiltin } from "node:module";
import { pathToFileURL } from "node:url";
import { Script } from "node:vm";
import type { Artifact } from "../compiler/artifact.ts";
import { guarded, within } from "./guard.ts";
import type { ImportGuard } from "./import-guard.ts";

export type Namespace = Readonly<Record<string, unknown>>;

/**
 * How one module sees another: code reads `binding.current.name` at every use, so that a commit changes what it finds.
 */
interface Binding {
  current: Namespace;
}

interface Instance {
  artifact: Artifact;
  exports: Namespace;
  /** The bindings to modules of the app, by module. They live as long as code of this instance does. */
  bindings: Map<string, Binding>;
}

/** `all` registers the names of another module that are not taken yet, as `export *` does. */
type Register = ((getters: object) => void) & { all: (from: Binding) => void };
type Factory = (imports: readonly Binding[], register: Register, meta: object) => AsyncGenerator<void>;

interface Scope {
  staged: ReadonlyMap<string, Instance> | undefined;
}

/** Modules that are evaluated and that nothing running sees yet. */
export interface Staged {
  generation: number;
  instances: Map<string, Instance>;
  /** Where dynamic imports of these modules look first, until the commit. */
  scope: Scope;
  removed: readonly string[];
}

/** What goes back to the generation before a commit. */
export interface Undo {
  generation: number;
  instances: Map<string, Instance>;
}

const evaluationTimeoutMs = 5_000;
/** The time that a long evaluation of many modules takes before others have their turn. */
const turnMs = 20;

/** The modules of the app. Each is bound late to those that it imports. */
export class ModuleRegistry {
  #current = new Map<string, Instance>();
  /** By module, the bindings of all importers whose code can still run. */
  readonly #bindings = new Map<string, Set<WeakRef<Binding>>>();
  /** Forgets the bindings of code that can no longer run, so that many reloads of an importer leave nothing behind. */
  readonly #collected = new FinalizationRegistry((forget: () => void) => forget());
  /** `file:` URL of the folder of the app, for packages and for `import.meta.url`. */
  readonly #folder: string;
  readonly #builtins: Readonly<Record<string, Namespace>>;
  /** Keeps the app to the modules that its profile allows. */
  imports: ImportGuard | undefined;

  constructor(folder: string, builtins: Readonly<Record<string, Namespace>>) {
    this.#folder = folder.endsWith("/") ? folder : `${folder}/`;
    this.#builtins = builtins;
  }

  modules(): string[] {
    return [...this.#current.keys()];
  }

  exports(module: string): Namespace | undefined {
    return this.#current.get(module)?.exports;
  }

  /** Evaluates modules in the given order, dependencies first, beside the ones in use. */
  async stage(
    generation: number,
    artifacts: readonly Artifact[],
    order: readonly string[],
    removed: readonly string[],
  ): Promise<Staged> {
    const changed = new Map(artifacts.map((artifact) => [artifact.module, artifact]));
    const instances = new Map<string, Instance>();
    for (const module of order) {
      const artifact = changed.get(module) ?? this.#current.get(module)?.artifact;
      if (artifact === undefined) throw new Error(`Cannot evaluate ${module}: its code was not sent`);
      instances.set(module, { artifact, exports: Object.create(null) as Namespace, bindings: new Map() });
    }
    const scope: Scope = { staged: instances };
    const pause = pauses();
    const runs: { module: string; body: AsyncGenerator<void> }[] = [];
    for (const [module, instance] of instances) {
      await pause();
      runs.push({ module, body: await this.#begin(instance, instances, scope) });
    }
    for (const { module, body } of runs) {
      await pause();
      try {
        await within(
          guarded(() => body.next(), evaluationTimeoutMs),
          evaluationTimeoutMs,
          "its top-level await",
        );
      } catch (error) {
        throw Object.assign(asError(error), { module });
      }
    }
    return { generation, instances, scope, removed };
  }

  /** Makes staged modules the current ones, for all code at once. */
  commit(staged: Staged): Undo {
    const undo: Undo = { generation: staged.generation, instances: new Map(this.#current) };
    staged.scope.staged = undefined;
    const next = new Map(this.#current);
    for (const module of staged.removed) next.delete(module);
    for (const [module, instance] of staged.instances) next.set(module, instance);
    this.#setCurrent(next, [...staged.instances.keys()]);
    return undo;
  }

  revert(undo: Undo): void {
    const changed = [...undo.instances].filter(([module, instance]) => this.#current.get(module) !== instance);
    this.#setCurrent(
      new Map(undo.instances),
      changed.map(([module]) => module),
    );
  }

  #setCurrent(next: Map<string, Instance>, changed: readonly string[]): void {
    this.#current = next;
    for (const module of changed) {
      const exports = next.get(module)?.exports;
      const bindings = this.#bindings.get(module);
      if (exports === undefined || bindings === undefined) continue;
      for (const reference of bindings) {
        const binding = reference.deref();
        if (binding === undefined) bindings.delete(reference);
        else binding.current = exports;
      }
    }
  }

  /** Runs the factory up to its first yield, after which its exports are there, functions already usable. */
  async #begin(instance: Instance, staged: ReadonlyMap<string, Instance>, scope: Scope): Promise<AsyncGenerator<void>> {
    const { artifact } = instance;
    const imports: Binding[] = [];
    for (const { specifier, module, kind } of artifact.dependencies) {
      // Types have no value, and dynamic imports are resolved when they run.
      if (kind === "type" || kind === "dynamic") imports.push({ current: Object.create(null) as Namespace });
      else if (module === null) imports.push({ current: await this.#native(specifier) });
      else imports.push(this.#bind(instance, module, staged));
    }
    const factory = new Script(artifact.code, {
      filename: `${this.#folder}${artifact.module}`,
    }).runInThisContext() as Factory;
    const body = factory(imports, registerOf(instance.exports), this.#meta(artifact, scope));
    await body.next();
    return body;
  }

  #bind(instance: Instance, module: string, staged: ReadonlyMap<string, Instance>): Binding {
    const known = instance.bindings.get(module);
    if (known !== undefined) return known;
    const target = staged.get(module) ?? this.#current.get(module);
    if (target === undefined) throw new Error(`Cannot find ${module}, which ${instance.artifact.module} imports`);
    const binding: Binding = { current: target.exports };
    instance.bindings.set(module, binding);
    const bindings = this.#bindings.get(module) ?? new Set();
    const reference = new WeakRef(binding);
    bindings.add(reference);
    this.#bindings.set(module, bindings);
    this.#collected.register(binding, () => bindings.delete(reference));
    return binding;
  }

  #meta(artifact: Artifact, scope: Scope): object {
    const url = new URL(artifact.module, this.#folder).href;
    const dynamic = new Map(artifact.dependencies.map(({ specifier, module }) => [specifier, module]));
    return {
      url,
      filename: decodeURIComponent(new URL(url).pathname),
      dirname: decodeURIComponent(new URL(".", url).pathname).replace(/\/$/, ""),
      import: async (specifier: string): Promise<Namespace> => {
        const module = dynamic.get(specifier);
        if (module === undefined || module === null) return this.#native(specifier);
        const exports = scope.staged?.get(module)?.exports ?? this.exports(module);
        if (exports === undefined) throw new Error(`Cannot find ${module}, which ${artifact.module} imports`);
        return exports;
      },
    };
  }

  async #native(specifier: string): Promise<Namespace> {
    const builtin = this.#builtins[specifier];
    if (builtin !== undefined) return builtin;
    this.imports?.check(specifier);
    if (!isBuiltin(specifier)) await this.imports?.guardPackages();
    if (specifier.startsWith("node:")) return (await import(specifier)) as Namespace;
    return (await import(import.meta.resolve(specifier, this.#folder))) as Namespace;
  }
}

function registerOf(exports: Namespace): Register {
  const register = (getters: object): void => {
    Object.defineProperties(exports, Object.getOwnPropertyDescriptors(getters));
  };
  const all = (from: Binding): void => {
    for (const name of Object.keys(from.current)) {
      if (name === "default" || Object.hasOwn(exports, name)) continue;
      Object.defineProperty(exports, name, { get: () => from.current[name], enumerable: true });
    }
  };
  return Object.assign(register, { all });
}

/** Lets everything else in the process go on, now and then: services answer while many modules are evaluated. */
function pauses(): () => Promise<void> {
  let lastAt = performance.now();
  return async () => {
    if (performance.now() - lastAt < turnMs) return;
    await new Promise((resolve) => setImmediate(resolve));
    lastAt = performance.now();
  };
}

export const folderUrl = (folder: string): string => pathToFileURL(`${folder}/`).href;

const asError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)));
