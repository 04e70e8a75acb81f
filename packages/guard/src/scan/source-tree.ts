import { visitorKeys, type Node, type Program } from "oxc-parser";
import { ScopeTracker, walk } from "oxc-walker";
import { bare } from "./constant-text.ts";
import { roots } from "./known-names.ts";

export interface Visited {
  node: Node;
  parent: Node | undefined;
}

/** What a scan needs of a syntax tree, gathered in one pass that does not depend on how deep the tree is. */
export class SourceTree {
  readonly found: Visited[] = [];
  /** The values of constants that are declared once, by name. */
  readonly constants = new Map<string, Node>();
  readonly #program: Program;
  readonly #declared = new Map<string, number>();
  #bound: ReadonlySet<Node> | undefined;

  constructor(program: Program) {
    this.#program = program;
    const waiting: Visited[] = [{ node: program, parent: undefined }];
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      this.#visit(next);
      const children = next.node as unknown as Record<string, Node | (Node | null)[] | null | undefined>;
      for (const key of visitorKeys[next.node.type] ?? []) {
        const child = children[key];
        if (Array.isArray(child)) {
          for (const each of child) if (each !== null) waiting.push({ node: each, parent: next.node });
        } else if (child !== null && child !== undefined) waiting.push({ node: child, parent: next.node });
      }
    }
    this.found.sort((a, b) => a.node.start - b.node.start);
    for (const name of this.constants.keys()) if ((this.#declared.get(name) ?? 0) > 1) this.constants.delete(name);
  }

  /** Whether an identifier names a variable of the source, and not a global. */
  isBound(node: Extract<Node, { type: "Identifier" }>): boolean {
    if (!this.#declared.has(node.name)) return false;
    this.#bound ??= this.#findBound();
    return this.#bound.has(node);
  }

  #visit(visited: Visited): void {
    const { node } = visited;
    if (wanted.has(node.type)) this.found.push(visited);
    // Few of the many types of nodes matter here.
    // oxlint-disable-next-line typescript/switch-exhaustiveness-check
    switch (node.type) {
      case "VariableDeclarator": {
        this.#declare(node.id);
        const { parent } = visited;
        const isConstant = parent?.type === "VariableDeclaration" && parent.kind === "const";
        if (isConstant && node.id.type === "Identifier" && node.init !== null)
          this.constants.set(node.id.name, bare(node.init));
        return;
      }
      case "FunctionDeclaration":
      case "FunctionExpression":
      case "ArrowFunctionExpression":
        this.#declare(node.id);
        for (const parameter of node.params) {
          this.#declare(parameter.type === "TSParameterProperty" ? parameter.parameter : parameter);
        }
        return;
      case "ClassDeclaration":
      case "ClassExpression":
        this.#declare(node.id);
        return;
      case "CatchClause":
        this.#declare(node.param);
        return;
      case "ImportDeclaration":
        for (const { local } of node.specifiers) this.#declare(local);
        return;
      default:
    }
  }

  #declare(pattern: Node | null): void {
    // Few of the many types of nodes matter here.
    // oxlint-disable-next-line typescript/switch-exhaustiveness-check
    switch (pattern?.type) {
      case "Identifier":
        this.#declared.set(pattern.name, (this.#declared.get(pattern.name) ?? 0) + 1);
        return;
      case "ObjectPattern":
        for (const property of pattern.properties) {
          this.#declare(property.type === "RestElement" ? property.argument : property.value);
        }
        return;
      case "ArrayPattern":
        for (const element of pattern.elements) this.#declare(element);
        return;
      case "AssignmentPattern":
        this.#declare(pattern.left);
        return;
      case "RestElement":
        this.#declare(pattern.argument);
        return;
      default:
    }
  }

  /** Scopes are looked at only if the source declares a name that is also that of a global. */
  #findBound(): Set<Node> {
    const bound = new Set<Node>();
    try {
      const scopes = new ScopeTracker({ preserveExitedScopes: true });
      walk(this.#program, { scopeTracker: scopes });
      scopes.freeze();
      walk(this.#program, {
        scopeTracker: scopes,
        enter: (node) => {
          if (node.type !== "Identifier" || !roots.has(node.name)) return;
          if (scopes.getDeclaration(node.name) !== null) bound.add(node);
        },
      });
    } catch (error) {
      // A tree that is too deep for it: every use counts as one of the global.
      if (!(error instanceof RangeError)) throw error;
    }
    return bound;
  }
}

/** Only nodes of these types can be worth a finding. */
const wanted: ReadonlySet<Node["type"]> = new Set([
  "Identifier",
  "MemberExpression",
  "CallExpression",
  "NewExpression",
  "ImportExpression",
  "VariableDeclarator",
  "AssignmentExpression",
  "ForStatement",
  "WhileStatement",
  "DoWhileStatement",
  "ObjectPattern",
  "Literal",
] as const);
