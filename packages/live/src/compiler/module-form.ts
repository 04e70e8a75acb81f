import { MagicString } from "magic-string";
import { parseSync, type ParseResult } from "oxc-parser";
import { ScopeTracker, walk } from "oxc-walker";
import type { Dependency } from "./artifact.ts";
import { EvaluationUses } from "./evaluation-uses.ts";

type StaticExport = ParseResult["module"]["staticExports"][number];
type ExportEntry = StaticExport["entries"][number];

/** A name in a record of imports or exports; the parser has an enumeration for each use of it. */
interface Named {
  kind: string;
  name: string | null;
}

/** How a name of an import is read in the module form. */
interface ImportedName {
  dependency: number;
  /** `undefined` for the namespace itself. */
  name: string | undefined;
}

export interface ModuleForm {
  code: MagicString;
  dependencies: Omit<Dependency, "module">[];
  exports: string[];
  /** Specifiers of `export *`. */
  starSpecifiers: string[];
}

/**
 * Rewrites JavaScript with imports and exports to the form that the runtime evaluates: an async generator function of
 * `($import, $export, $meta)` that registers getters for its exports, yields, and runs the body. Every use of an import
 * becomes a read of `$import[i].current`, so that it finds the newest code.
 */
export function toModuleForm(file: string, source: string): ModuleForm {
  const parsed = parseSync(file, source, { sourceType: "module", preserveParens: false });
  const [problem] = parsed.errors;
  if (problem !== undefined) throw new SyntaxError(`${file}: ${problem.message}`);
  return new Rewriter(source, parsed).rewrite();
}

class Rewriter {
  readonly #source: string;
  readonly #parsed: ParseResult;
  readonly #code: MagicString;
  readonly #dependencies: Omit<Dependency, "module">[] = [];
  readonly #imported = new Map<string, ImportedName>();
  readonly #getters: string[] = [];
  readonly #stars: number[] = [];
  readonly #exports: string[] = [];

  constructor(source: string, parsed: ParseResult) {
    this.#source = source;
    this.#parsed = parsed;
    this.#code = new MagicString(source);
  }

  rewrite(): ModuleForm {
    this.#readImports();
    this.#readDynamicImports();
    // Exports that take from other modules count as imports, so they come first.
    const evaluation = this.#rewriteUses();
    this.#rewriteExports();
    for (const index of [...evaluation, ...this.#stars]) this.#markEvaluation(index);
    for (const { start, end } of this.#parsed.module.importMetas) this.#code.overwrite(start, end, "$meta");
    const getters = this.#getters.join(", ");
    const stars = this.#stars.map((index) => `$export.all($import[${index}]);`).join(" ");
    this.#code.prepend(
      `(async function* ($import, $export, $meta) { "use strict"; $export({ ${getters} }); ${stars} yield; `,
    );
    this.#code.append("\n})");
    return {
      code: this.#code,
      dependencies: this.#dependencies,
      exports: this.#exports,
      starSpecifiers: this.#stars.flatMap((index) => this.#dependencies[index]?.specifier ?? []),
    };
  }

  #readImports(): void {
    for (const { start, end, moduleRequest, entries } of this.#parsed.module.staticImports) {
      const dependency = this.#dependency(moduleRequest.value);
      for (const { importName, localName } of entries) {
        const name = importedName(importName);
        this.#imported.set(localName.value, { dependency, name });
        this.#addName(dependency, name);
      }
      this.#code.remove(start, end);
    }
  }

  #readDynamicImports(): void {
    for (const { start, moduleRequest } of this.#parsed.module.dynamicImports) {
      this.#code.overwrite(start, start + "import".length, "$meta.import");
      const written = this.#source.slice(moduleRequest.start, moduleRequest.end);
      const literal = /^(["'])(.*)\1$/s.exec(written)?.[2];
      if (literal !== undefined) this.#dependencies.push({ specifier: literal, kind: "dynamic", names: ["*"] });
    }
  }

  /** Replaces the uses of imported names; returns the dependencies that are used while the module is evaluated. */
  #rewriteUses(): Set<number> {
    const scopes = new ScopeTracker({ preserveExitedScopes: true });
    walk(this.#parsed.program, { scopeTracker: scopes });
    scopes.freeze();
    const uses = new EvaluationUses();
    walk(this.#parsed.program, {
      scopeTracker: scopes,
      enter: (node, parent, { key }) => {
        if (node.type === "ImportDeclaration" || (node.type === "ExportNamedDeclaration" && node.source !== null))
          return;
        uses.enter(node, parent);
        if (node.type !== "Identifier" || parent === null || !isReference(node, parent)) return;
        // The key and the value of `{ name }` are both at this place.
        if (parent.type === "Property" && parent.shorthand && key !== "value") return;
        const imported = this.#imported.get(node.name);
        if (imported === undefined || scopes.getDeclaration(node.name)?.type !== "Import") return;
        uses.use(imported.dependency);
        const read = this.#read(imported);
        if (parent.type === "Property" && parent.shorthand) this.#code.appendLeft(node.end, `: ${read}`);
        else if (parent.type === "CallExpression" && parent.callee === node) {
          // Without the comma the namespace would become the `this` of the function.
          this.#code.overwrite(node.start, node.end, `(0, ${read})`);
        } else this.#code.overwrite(node.start, node.end, read);
      },
      leave: (node) => uses.leave(node),
    });
    return uses.dependencies();
  }

  #rewriteExports(): void {
    for (const { entries } of this.#parsed.module.staticExports) for (const entry of entries) this.#export(entry);
    for (const node of this.#parsed.program.body) {
      if (node.type === "ExportAllDeclaration") this.#code.remove(node.start, node.end);
      else if (node.type === "ExportNamedDeclaration") {
        this.#code.remove(node.start, node.declaration?.start ?? node.end);
      } else if (node.type === "ExportDefaultDeclaration") {
        const { declaration } = node;
        const isNamed =
          (declaration.type === "FunctionDeclaration" || declaration.type === "ClassDeclaration") &&
          declaration.id !== null;
        this.#code.overwrite(node.start, declaration.start, isNamed ? "" : "const $default = ");
        this.#code.appendLeft(node.end, ";");
      }
    }
  }

  #export(entry: ExportEntry): void {
    const { moduleRequest, isType } = entry;
    const importName: Named = entry.importName;
    const exportName: Named = entry.exportName;
    const localName: Named = entry.localName;
    if (isType) return;
    if (moduleRequest === null) {
      const name = exportName.kind === "Default" ? "default" : (exportName.name ?? "default");
      const local = localName.kind === "Name" && localName.name !== null ? localName.name : "$default";
      const imported = this.#imported.get(local);
      this.#getter(name, imported === undefined ? local : this.#read(imported));
      return;
    }
    const dependency = this.#dependency(moduleRequest.value);
    if (importName.kind === "AllButDefault") {
      this.#stars.push(dependency);
      this.#addName(dependency, undefined);
      return;
    }
    const name = importedName(importName);
    this.#addName(dependency, name);
    this.#getter(exportName.name ?? "default", this.#read({ dependency, name }));
  }

  #getter(name: string, value: string): void {
    this.#exports.push(name);
    this.#getters.push(`get ${JSON.stringify(name)}() { return ${value}; }`);
  }

  #read({ dependency, name }: ImportedName): string {
    const namespace = `$import[${dependency}].current`;
    if (name === undefined) return namespace;
    return /^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(name)
      ? `${namespace}.${name}`
      : `${namespace}[${JSON.stringify(name)}]`;
  }

  #dependency(specifier: string): number {
    const known = this.#dependencies.findIndex(
      (dependency) => dependency.specifier === specifier && dependency.kind !== "dynamic",
    );
    if (known !== -1) return known;
    this.#dependencies.push({ specifier, kind: "static", names: [] });
    return this.#dependencies.length - 1;
  }

  #addName(dependency: number, name: string | undefined): void {
    const names = this.#dependencies[dependency]?.names;
    if (names?.includes(name ?? "*") === false) names.push(name ?? "*");
  }

  #markEvaluation(index: number): void {
    const dependency = this.#dependencies[index];
    if (dependency !== undefined) dependency.kind = "evaluation";
  }
}

function importedName({ kind, name }: Named): string | undefined {
  if (kind === "Default") return "default";
  return kind === "Name" && name !== null ? name : undefined;
}

/** Whether an identifier reads a variable, and is no key, label or declaration. */
function isReference(node: { start: number }, parent: { type: string }): boolean {
  const at = parent as { computed?: boolean; shorthand?: boolean; object?: unknown; value?: unknown };
  switch (parent.type) {
    case "MemberExpression":
      return at.object === node || at.computed === true;
    case "Property":
      return at.value === node || at.computed === true || at.shorthand === true;
    case "MethodDefinition":
    case "PropertyDefinition":
    case "AccessorProperty":
      return at.value === node || at.computed === true;
    case "LabeledStatement":
    case "BreakStatement":
    case "ContinueStatement":
    case "ImportSpecifier":
    case "ImportDefaultSpecifier":
    case "ImportNamespaceSpecifier":
    case "ExportSpecifier":
    case "MetaProperty":
      return false;
    default:
      return true;
  }
}
