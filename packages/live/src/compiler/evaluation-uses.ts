import type { Node } from "oxc-parser";

/** A function of the module, or the module itself. What runs while it is evaluated is followed from there. */
interface Body {
  name: string | undefined;
  dependencies: Set<number>;
  calls: Set<string>;
}

/**
 * Finds which imports a module uses while it is evaluated: outside of functions, in functions that run at once, and in
 * functions of the module that are called from there. These see new code only if the module is evaluated again.
 */
export class EvaluationUses {
  readonly #module: Body = { name: undefined, dependencies: new Set(), calls: new Set() };
  readonly #functions: Body[] = [];
  readonly #stack: { node: Node; body: Body }[] = [{ node: undefined as never, body: this.#module }];

  enter(node: Node, parent: Node | null): void {
    if (isDeferred(node, parent)) {
      const body: Body = { name: nameOf(node, parent), dependencies: new Set(), calls: new Set() };
      this.#functions.push(body);
      this.#stack.push({ node, body });
    }
    if (node.type === "CallExpression" && node.callee.type === "Identifier") this.#top.calls.add(node.callee.name);
    if (node.type === "NewExpression" && node.callee.type === "Identifier") this.#top.calls.add(node.callee.name);
  }

  leave(node: Node): void {
    if (this.#stack.at(-1)?.node === node) this.#stack.pop();
  }

  use(dependency: number): void {
    this.#top.dependencies.add(dependency);
  }

  dependencies(): Set<number> {
    const reached = new Set<Body>();
    const waiting = [this.#module];
    const found = new Set<number>();
    const byName = new Map<string, Body[]>();
    for (const body of this.#functions) {
      if (body.name === undefined) continue;
      const others = byName.get(body.name);
      if (others === undefined) byName.set(body.name, [body]);
      else others.push(body);
    }
    for (let body = waiting.pop(); body !== undefined; body = waiting.pop()) {
      if (reached.has(body)) continue;
      reached.add(body);
      for (const dependency of body.dependencies) found.add(dependency);
      for (const name of body.calls) waiting.push(...(byName.get(name) ?? []));
    }
    return found;
  }

  get #top(): Body {
    return this.#stack.at(-1)?.body ?? this.#module;
  }
}

/** Whether the code of a node runs later than the code around it. */
function isDeferred(node: Node, parent: Node | null): boolean {
  if (node.type === "FunctionDeclaration") return true;
  // Instance fields run when an object is made, static ones with the class.
  if (node.type === "PropertyDefinition") return !node.static;
  if (node.type !== "FunctionExpression" && node.type !== "ArrowFunctionExpression") return false;
  // A function that is called in place, or passed to a call such as `map`, may run at once.
  return !((parent?.type === "CallExpression" || parent?.type === "NewExpression") && !isLater(parent));
}

const laterCalls: ReadonlySet<string> = new Set(["setTimeout", "setInterval", "setImmediate", "queueMicrotask"]);

const isLater = (call: Node): boolean =>
  call.type === "CallExpression" && call.callee.type === "Identifier" && laterCalls.has(call.callee.name);

function nameOf(node: Node, parent: Node | null): string | undefined {
  if (node.type === "FunctionDeclaration") return node.id?.name;
  if (parent?.type === "VariableDeclarator" && parent.id.type === "Identifier") return parent.id.name;
  return undefined;
}
