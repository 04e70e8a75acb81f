import type { Artifact, Dependency } from "../compiler/artifact.ts";

export type EdgeKind = Dependency["kind"];

/** Edges along which a module has to be evaluated before its importer. */
const loadKinds: ReadonlySet<EdgeKind> = new Set(["static", "evaluation"]);

export interface GraphProblem {
  importer: string;
  specifier: string;
  message: string;
}

/** The modules of one generation of an app, and who imports whom. */
export class ModuleGraph {
  readonly #artifacts: ReadonlyMap<string, Artifact>;
  #importers: Map<string, { importer: string; kind: EdgeKind }[]> | undefined;

  constructor(artifacts: Iterable<Artifact>) {
    this.#artifacts = new Map([...artifacts].map((artifact) => [artifact.module, artifact]));
  }

  modules(): string[] {
    return [...this.#artifacts.keys()].toSorted();
  }

  artifact(module: string): Artifact | undefined {
    return this.#artifacts.get(module);
  }

  /** The modules of the app that a module imports, along edges of these kinds. */
  dependencies(module: string, kinds: ReadonlySet<EdgeKind> = loadKinds): string[] {
    const targets = (this.#artifacts.get(module)?.dependencies ?? []).flatMap(({ module: target, kind }) =>
      target !== null && kinds.has(kind) && this.#artifacts.has(target) ? [target] : [],
    );
    return [...new Set(targets)];
  }

  importers(module: string, kinds: ReadonlySet<EdgeKind> = loadKinds): string[] {
    this.#importers ??= this.#reversed();
    const importers = this.#importers.get(module) ?? [];
    return [...new Set(importers.filter(({ kind }) => kinds.has(kind)).map(({ importer }) => importer))].toSorted();
  }

  /** Modules that the entry needs, each after those that it imports; a cycle starts where it is entered. */
  loadOrder(entry: string): string[] {
    return this.#postOrder([entry, ...this.modules()]);
  }

  /**
   * What has to be evaluated for a change, dependencies first: the changed modules, and all that use one of them while
   * they are evaluated. Other importers are bound late and find the new code by themselves.
   */
  reloadOrder(changed: Iterable<string>): string[] {
    const evaluate = new Set<string>();
    const waiting = [...changed].filter((module) => this.#artifacts.has(module));
    const evaluationOnly: ReadonlySet<EdgeKind> = new Set(["evaluation"]);
    for (let module = waiting.pop(); module !== undefined; module = waiting.pop()) {
      if (evaluate.has(module)) continue;
      evaluate.add(module);
      waiting.push(...this.importers(module, evaluationOnly));
    }
    return this.#postOrder(this.modules()).filter((module) => evaluate.has(module));
  }

  /** Groups of modules that import each other, and single ones; each group after those that it depends on. */
  components(): string[][] {
    // Tarjan's algorithm, with its own stack, since a chain of imports may be long.
    const index = new Map<string, number>();
    const low = new Map<string, number>();
    const onStack = new Set<string>();
    const stack: string[] = [];
    const components: string[][] = [];
    const open = (module: string): { module: string; rest: string[] } => {
      index.set(module, index.size);
      low.set(module, index.size - 1);
      stack.push(module);
      onStack.add(module);
      return { module, rest: this.dependencies(module) };
    };
    const lower = (module: string, to: number): void => void low.set(module, Math.min(low.get(module) ?? to, to));
    for (const start of this.modules()) {
      if (index.has(start)) continue;
      const path = [open(start)];
      for (let top = path.at(-1); top !== undefined; top = path.at(-1)) {
        const next = top.rest.shift();
        if (next !== undefined) {
          if (!index.has(next)) path.push(open(next));
          else if (onStack.has(next)) lower(top.module, index.get(next) ?? 0);
          continue;
        }
        path.pop();
        const above = path.at(-1);
        if (above !== undefined) lower(above.module, low.get(top.module) ?? 0);
        if (low.get(top.module) !== index.get(top.module)) continue;
        const component = stack.splice(stack.indexOf(top.module));
        for (const module of component) onStack.delete(module);
        components.push(component);
      }
    }
    return components;
  }

  /** Imports that lead to no module, or to a name that the module does not export. */
  problems(): GraphProblem[] {
    const exports = new Map<string, Set<string> | undefined>();
    const exportsOf = (module: string): Set<string> | undefined => {
      if (!exports.has(module)) exports.set(module, this.#exportsOf(module, new Set()));
      return exports.get(module);
    };
    return [...this.#artifacts.values()].flatMap((artifact) =>
      artifact.dependencies.flatMap(({ specifier, module, kind, names }) => {
        if (module === null || kind === "type") return [];
        const importer = artifact.module;
        const exported = exportsOf(module);
        if (exported === undefined) return [{ importer, specifier, message: this.#missing(module) }];
        return names
          .filter((name) => name !== "*" && !exported.has(name))
          .map((name) => ({ importer, specifier, message: `${module} does not export ${JSON.stringify(name)}` }));
      }),
    );
  }

  #missing(module: string): string {
    const stem = module.replace(/\.\w+$/, "");
    const near = [`${stem}.ts`, `${module}.ts`, `${module}/index.ts`, `${stem}.json`].find((each) =>
      this.#artifacts.has(each),
    );
    return `there is no module ${module}${near === undefined ? "" : `; did you mean ${near}?`}`;
  }

  #reversed(): Map<string, { importer: string; kind: EdgeKind }[]> {
    const importers = new Map<string, { importer: string; kind: EdgeKind }[]>();
    for (const { module: importer, dependencies } of this.#artifacts.values()) {
      for (const { module, kind } of dependencies) {
        if (module === null) continue;
        const known = importers.get(module);
        if (known === undefined) importers.set(module, [{ importer, kind }]);
        else known.push({ importer, kind });
      }
    }
    return importers;
  }

  /** The exported names of a module, with those that it passes on by `export *`. */
  #exportsOf(module: string, seen: Set<string>): Set<string> | undefined {
    const artifact = this.#artifacts.get(module);
    if (artifact === undefined) return undefined;
    const names = new Set(artifact.exports);
    if (seen.has(module)) return names;
    seen.add(module);
    for (const target of artifact.starExports) {
      for (const name of this.#exportsOf(target, seen) ?? []) if (name !== "default") names.add(name);
    }
    return names;
  }

  #postOrder(roots: readonly string[]): string[] {
    const seen = new Set<string>();
    const order: string[] = [];
    for (const root of roots) {
      if (!this.#artifacts.has(root) || seen.has(root)) continue;
      seen.add(root);
      const path = [{ module: root, rest: this.dependencies(root) }];
      for (let top = path.at(-1); top !== undefined; top = path.at(-1)) {
        const next = top.rest.shift();
        if (next === undefined) {
          order.push(top.module);
          path.pop();
        } else if (!seen.has(next)) {
          seen.add(next);
          path.push({ module: next, rest: this.dependencies(next) });
        }
      }
    }
    return order;
  }
}
