import { parseSync, type Node } from "oxc-parser";
import { builtinName } from "../capabilities/builtin-modules.ts";
import { bare, constantText } from "./constant-text.ts";
import { isEndless } from "./endless-loop.ts";
import type { Finding } from "./finding.ts";
import * as known from "./known-names.ts";
import { isSlow } from "./slow-expression.ts";
import { SourceTree, type Visited } from "./source-tree.ts";

/** A larger source is not parsed. */
const maxBytes = 8 * 1024 * 1024;
/** More findings of one source help no one. */
const maxFindings = 200;

/** What has to be in a source for any rule but those for imports to apply; most sources need no syntax tree. */
const suspicious = new RegExp(
  [
    String.raw`\\[ux]|[+*,]\}?\)[*+{]|["'\x60]\s*\+\s*["'\x60]|\$\{\s*["'\x60]`,
    String.raw`\b(?:eval|Function|process|constructor|__proto__|prototype|globalThis|global|self|fetch|WebSocket`,
    String.raw`EventSource|XMLHttpRequest|WebAssembly|Deno|require|createRequire|atob|fromCharCode|fromCodePoint)\b`,
    String.raw`\bimport\s*\(|\b(?:setTimeout|setInterval|setImmediate)\s*\(\s*[^\s(\w]|\.(?:join|concat)\(`,
    String.raw`\bwhile\s*\(\s*[!1-9t(]|\bfor\s*\(\s*[^;]*;\s*(?:true|1)?\s*;`,
  ].join("|"),
);

/**
 * Scans one module of JavaScript or TypeScript. A source can be made to end the parser together with its process, so
 * code that is not trusted is scanned in a process of its own.
 */
export function scanModule(file: string, source: string): Finding[] {
  if (file.endsWith(".json")) return [];
  if (Buffer.byteLength(source) > maxBytes) {
    return [unscannable(file, `it is larger than ${maxBytes / 1024 / 1024} MiB`)];
  }
  return new ModuleScan(file, source).run();
}

/** What is said of a source that could not be scanned. */
export const unscannable = (file: string, why: string): Finding => ({
  file,
  line: 1,
  column: 1,
  severity: "high",
  rule: "unscannable",
  why: `Cannot scan ${file}: ${why}`,
  fix: "Read the code before you load it, or split it into smaller modules.",
});

class ModuleScan {
  readonly #file: string;
  readonly #source: string;
  readonly #findings: Finding[] = [];
  readonly #lineStarts: number[] = [0];
  /** Names of the source for globals: `process` for what is imported from `node:process`, `require` for a made one. */
  readonly #aliases = new Map<string, string>();
  #tree: SourceTree | undefined;

  constructor(file: string, source: string) {
    this.#file = file;
    this.#source = source;
    for (let at = source.indexOf("\n"); at !== -1; at = source.indexOf("\n", at + 1)) this.#lineStarts.push(at + 1);
  }

  run(): Finding[] {
    const parsed = parseSync(this.#file, this.#source, { sourceType: "module", preserveParens: false });
    const [error] = parsed.errors;
    if (error !== undefined) {
      const why = `It cannot be parsed, so nothing in it was scanned: ${error.message}`;
      const fix = "Repair it, or do not load it.";
      return [this.#add(error.labels[0]?.start ?? 0, { severity: "high", rule: "syntax_error", why, fix })];
    }
    for (const { start, moduleRequest, entries } of parsed.module.staticImports) {
      if (entries.length > 0 && entries.every(({ isType }) => isType)) continue;
      this.#import(moduleRequest.value, start);
      const name = builtinName(moduleRequest.value);
      for (const { importName, localName } of entries) {
        if (name === "process") this.#alias(localName.value, "process", importName);
        if (name === "module" && importName.name === "createRequire") {
          this.#aliases.set(localName.value, "createRequire");
        }
      }
    }
    for (const { entries } of parsed.module.staticExports) {
      for (const { moduleRequest, start } of entries) {
        if (moduleRequest !== null) this.#import(moduleRequest.value, start);
      }
    }
    if (suspicious.test(this.#source)) this.#scanTree(new SourceTree(parsed.program));
    return this.#findings;
  }

  /** `import process from`, `import * as process from` and `import { env } from "node:process"`. */
  #alias(local: string, root: string, { kind, name }: { kind: string; name: string | null }): void {
    this.#aliases.set(local, kind === "Name" && name !== "default" ? `${root}.${name ?? ""}` : root);
  }

  #scanTree(tree: SourceTree): void {
    this.#tree = tree;
    for (const [name, value] of tree.constants) {
      const path = value.type === "CallExpression" && this.#path(value.callee) === "createRequire" ? "require" : "";
      if (path !== "") this.#aliases.set(name, path);
      else if (value.type === "Identifier" || value.type === "MemberExpression") this.#aliasOf(name, value);
    }
    for (const visited of tree.found) {
      if (this.#findings.length >= maxFindings) return;
      this.#check(visited);
    }
  }

  #aliasOf(name: string, value: Node): void {
    const path = this.#path(value);
    if (path !== undefined && /^(process|global|require|Function|eval|WebAssembly)\b/.test(path)) {
      this.#aliases.set(name, path);
    }
  }

  #check({ node, parent }: Visited): void {
    // Few of the many types of nodes matter here.
    // oxlint-disable-next-line typescript/switch-exhaustiveness-check
    switch (node.type) {
      case "Identifier":
        if (parent !== undefined && isUse(node, parent)) this.#checkPath(node);
        return;
      case "MemberExpression":
        this.#checkPath(node);
        this.#checkMember(node, parent);
        return;
      case "CallExpression":
      case "NewExpression":
        this.#checkCall(node);
        return;
      case "ImportExpression":
        this.#checkDynamicImport(node.source, node.start);
        return;
      case "ObjectPattern":
        this.#checkPattern(node, parent);
        return;
      case "AssignmentExpression":
        this.#checkAssignment(node.left);
        return;
      case "ForStatement":
      case "WhileStatement":
      case "DoWhileStatement":
        if (isEndless(node, parent)) this.#add(node.start, known.endlessLoop);
        return;
      case "Literal":
        if ("regex" in node && isSlow(node.regex.pattern)) this.#add(node.start, known.slowExpression);
        return;
      default:
    }
  }

  #checkPath(node: Node): void {
    const path = this.#path(node);
    const verdict = path === undefined ? undefined : known.globals.get(path);
    if (verdict !== undefined) this.#add(node.start, verdict);
  }

  #checkMember(node: Extract<Node, { type: "MemberExpression" }>, parent: Node | undefined): void {
    const name = this.#memberName(node);
    const object = bare(node.object);
    if (name === "__proto__") {
      const isTarget = parent?.type === "AssignmentExpression" && parent.left === node;
      if (!isTarget) this.#add(node.start, known.prototypeRead);
    } else if (name === "constructor" && this.#isFunctionLike(object)) this.#add(node.start, known.prototypeEscape);
    else if (name === undefined && node.computed && isRoot(this.#path(object))) {
      this.#add(node.start, known.computedAccess);
    }
  }

  /** Functions, what has no `constructor` but that of a function, and prototypes, which lead to both. */
  #isFunctionLike(object: Node): boolean {
    if (object.type === "FunctionExpression" || object.type === "ArrowFunctionExpression") return true;
    if (object.type === "ClassExpression") return true;
    if (object.type === "MemberExpression" && this.#memberName(object) === "constructor") return true;
    return object.type === "CallExpression" && /(^|\.)getPrototypeOf$/.test(this.#path(object.callee) ?? "");
  }

  #checkCall(node: Extract<Node, { type: "CallExpression" | "NewExpression" }>): void {
    const path = this.#path(node.callee);
    const [first, second] = node.arguments;
    const callee = bare(node.callee);
    if (path === "Function" || path?.startsWith("Function.") === true) this.#add(node.start, known.dynamicCode);
    else if (path === "require" || path === "process.getBuiltinModule" || path === "module.require") {
      if (first !== undefined) this.#checkDynamicImport(first, node.start);
    } else if (path !== undefined && /^set(Timeout|Interval|Immediate)$/.test(path)) {
      if (first !== undefined && this.#text(first) !== undefined) this.#add(node.start, known.textTimer);
    } else if (callee.type === "MemberExpression" && this.#memberName(callee) === "constructor") {
      const isOfText = first !== undefined && this.#text(first) !== undefined && node.type === "CallExpression";
      if (isOfText && !this.#isFunctionLike(bare(callee.object))) this.#add(node.start, known.prototypeEscape);
    } else if (/^(Reflect|Object)\.(get|getOwnPropertyDescriptor)$/.test(path ?? "")) {
      const name = second === undefined ? undefined : this.#text(second);
      if (name === "constructor") this.#add(node.start, known.constructorTaken);
    } else if (/^(Reflect|Object)\.(defineProperty|defineProperties|assign|setPrototypeOf|set)$/.test(path ?? "")) {
      if (first !== undefined && this.#isShared(first)) this.#add(node.start, known.prototypeChange);
    }
  }

  #checkDynamicImport(specifier: Node, at: number): void {
    const name = this.#text(specifier);
    if (name === undefined) this.#add(at, known.computedImport);
    else this.#import(name, at);
  }

  /** `const { constructor: F } = f`, and patterns for the members of globals. */
  #checkPattern(node: Extract<Node, { type: "ObjectPattern" }>, parent: Node | undefined): void {
    const source =
      parent?.type === "VariableDeclarator"
        ? parent.init
        : parent?.type === "AssignmentExpression"
          ? parent.right
          : null;
    const path = source === null ? undefined : this.#path(source);
    for (const property of node.properties) {
      if (property.type !== "Property") continue;
      const key = property.key;
      const name = !property.computed && key.type === "Identifier" ? key.name : this.#text(key);
      if (name === "constructor") {
        const isDeep =
          property.value.type === "ObjectPattern" || (source !== null && this.#isFunctionLike(bare(source)));
        this.#add(property.start, isDeep ? known.prototypeEscape : known.constructorTaken);
      } else if (name === "__proto__") this.#add(property.start, known.prototypeRead);
      else if (path !== undefined && name !== undefined) {
        const verdict = known.globals.get(isGlobalObject(path) ? name : `${path}.${name}`);
        if (verdict !== undefined) this.#add(property.start, verdict);
      }
    }
  }

  #checkAssignment(target: Node): void {
    if (target.type !== "MemberExpression") return;
    if (this.#memberName(target) === "__proto__" || this.#isShared(target.object)) {
      this.#add(target.start, known.prototypeChange);
    }
  }

  /** Whether an expression is the prototype of a class of the language. */
  #isShared(node: Node): boolean {
    const [name = "", member] = this.#path(bare(node))?.split(".") ?? [];
    return member === "prototype" && known.sharedClasses.has(name);
  }

  /** `process.binding` for `globalThis["process"].binding`; `undefined` for what is no global. */
  #path(given: Node): string | undefined {
    const members: string[] = [];
    let node = bare(given);
    while (node.type === "MemberExpression") {
      const name = this.#memberName(node);
      if (name === undefined) return undefined;
      members.unshift(name);
      node = bare(node.object);
    }
    // `createRequire(import.meta.url)("fs")`
    if (node.type === "CallExpression" && this.#path(node.callee) === "createRequire") return "require";
    if (node.type !== "Identifier") return undefined;
    const alias = this.#aliases.get(node.name);
    const isGlobal = known.roots.has(node.name) && this.#tree?.isBound(node) !== true;
    if (alias === undefined && !isGlobal) return undefined;
    const path = [...(alias ?? node.name).split("."), ...members];
    while (path.length > 1 && isGlobalObject(path[0])) path.shift();
    return path.join(".");
  }

  #memberName(node: Extract<Node, { type: "MemberExpression" }>): string | undefined {
    const { property } = node;
    if (!node.computed) return property.type === "Identifier" ? property.name : undefined;
    return this.#text(property);
  }

  #text(node: Node): string | undefined {
    return constantText(node, this.#tree?.constants ?? new Map());
  }

  #import(specifier: string, at: number): void {
    if (specifier.endsWith(".node")) this.#add(at, known.nativeModule);
    const name = builtinName(specifier);
    const verdict = name === undefined ? undefined : known.importVerdict(name);
    if (verdict !== undefined) this.#add(at, verdict);
    if (specifier.startsWith("data:")) this.#add(at, known.dynamicCode);
  }

  #add(offset: number, verdict: known.Verdict): Finding {
    const found = { file: this.#file, ...this.#position(offset), ...verdict };
    const isKnown = this.#findings.some(
      ({ line, column, rule }) => line === found.line && column === found.column && rule === found.rule,
    );
    if (!isKnown) this.#findings.push(found);
    return found;
  }

  #position(offset: number): { line: number; column: number } {
    let low = 0;
    let high = this.#lineStarts.length - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if ((this.#lineStarts[middle] ?? 0) <= offset) low = middle;
      else high = middle - 1;
    }
    return { line: low + 1, column: offset - (this.#lineStarts[low] ?? 0) + 1 };
  }
}

const isGlobalObject = (name: string | undefined): boolean =>
  name === "globalThis" || name === "global" || name === "self";

const isRoot = (path: string | undefined): boolean => path === "process" || isGlobalObject(path);

/** Whether an identifier reads a variable, and is no key, label or declaration. Members are checked as a whole. */
function isUse(node: Node, parent: Node): boolean {
  // Few of the many types of nodes matter here.
  // oxlint-disable-next-line typescript/switch-exhaustiveness-check
  switch (parent.type) {
    case "MemberExpression":
      return parent.object !== node && parent.computed;
    case "Property":
      return parent.value === node || parent.computed;
    case "MethodDefinition":
    case "PropertyDefinition":
    case "AccessorProperty":
      return parent.value === node || parent.computed;
    case "VariableDeclarator":
      return parent.init === node;
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
      return !parent.type.startsWith("TS") || ("expression" in parent && parent.expression === node);
  }
}
