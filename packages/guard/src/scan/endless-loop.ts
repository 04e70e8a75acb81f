import { visitorKeys, type Node } from "oxc-parser";

type Loop = Extract<Node, { type: "ForStatement" | "WhileStatement" | "DoWhileStatement" }>;

/** Whether a loop without a condition has nothing in it that leaves it, or that lets other code run. */
export function isEndless(loop: Loop, parent: Node | undefined): boolean {
  if (!(loop.test === null || isAlwaysTrue(loop.test))) return false;
  const label = parent?.type === "LabeledStatement" ? parent.label.name : undefined;
  const waiting: { node: Node; isInner: boolean }[] = [{ node: loop.body, isInner: false }];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { node, isInner } = next;
    if (leaves(node, isInner, label)) return false;
    // What a function in the loop does, it does when it is called.
    if (/Function|^Class/.test(node.type)) continue;
    const children = node as unknown as Record<string, Node | (Node | null)[] | null | undefined>;
    const holds = isInner || /^(For|While|DoWhile|Switch)/.test(node.type);
    for (const key of visitorKeys[node.type] ?? []) {
      const child = children[key];
      for (const each of Array.isArray(child) ? child : [child]) {
        if (each !== null && each !== undefined) waiting.push({ node: each, isInner: holds });
      }
    }
  }
  return true;
}

function leaves(node: Node, isInner: boolean, label: string | undefined): boolean {
  // Few of the many types of nodes matter here.
  // oxlint-disable-next-line typescript/switch-exhaustiveness-check
  switch (node.type) {
    case "ReturnStatement":
    case "ThrowStatement":
    case "AwaitExpression":
    case "YieldExpression":
      return true;
    case "ForOfStatement":
      return node.await;
    case "BreakStatement":
      // A label other than its own is of something around the loop, or of something in it; both count.
      return node.label === null ? !isInner : node.label.name === label || label === undefined;
    case "ContinueStatement":
      return node.label !== null && node.label.name !== label;
    default:
      return false;
  }
}

const isAlwaysTrue = (test: Node): boolean =>
  (test.type === "Literal" && Boolean(test.value)) ||
  (test.type === "UnaryExpression" &&
    test.operator === "!" &&
    test.argument.type === "Literal" &&
    !test.argument.value);
