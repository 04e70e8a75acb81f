import type { Expression, Node } from "oxc-parser";

/** How many expressions are looked at for one text: constants that name each other could be endless. */
const maxSteps = 200;
/** No name of a module or a member is longer. */
const maxLength = 500;

/** Leaves out what does not change a value: types, and all but the last of a sequence such as `(0, eval)`. */
export function bare(node: Node): Node {
  let inner = node;
  for (;;) {
    // Few of the many types of nodes matter here.
    // oxlint-disable-next-line typescript/switch-exhaustiveness-check
    switch (inner.type) {
      case "TSAsExpression":
      case "TSSatisfiesExpression":
      case "TSNonNullExpression":
      case "TSTypeAssertion":
      case "ParenthesizedExpression":
      case "ChainExpression":
        inner = inner.expression;
        break;
      case "SequenceExpression": {
        const last: Expression | undefined = inner.expressions.at(-1);
        if (last === undefined) return inner;
        inner = last;
        break;
      }
      default:
        return inner;
    }
  }
}

/**
 * The text of an expression, as far as it is known without running it: literals, what is joined of them, and
 * constants. `undefined` for everything else.
 */
export function constantText(
  node: Node,
  constants: ReadonlyMap<string, Node>,
  steps = { left: maxSteps },
): string | undefined {
  steps.left -= 1;
  if (steps.left < 0) return undefined;
  const text = (inner: Node): string | undefined => constantText(inner, constants, steps);
  const value = bare(node);
  // Few of the many types of nodes matter here.
  // oxlint-disable-next-line typescript/switch-exhaustiveness-check
  switch (value.type) {
    case "Literal":
      if (typeof value.value === "number") return String(value.value);
      return typeof value.value === "string" && value.value.length <= maxLength ? value.value : undefined;
    case "Identifier": {
      const constant = constants.get(value.name);
      return constant === undefined ? undefined : text(constant);
    }
    case "TemplateLiteral": {
      const parts = value.quasis.flatMap(({ value: quasi }, at) => {
        const expression = value.expressions[at];
        return expression === undefined ? [quasi.cooked ?? undefined] : [quasi.cooked ?? undefined, text(expression)];
      });
      return joined(parts);
    }
    case "BinaryExpression":
      return value.operator === "+" ? joined([text(value.left), text(value.right)]) : undefined;
    case "CallExpression":
      return calledText(value.callee, value.arguments, text);
    default:
      return undefined;
  }
}

/** Calls that make text out of text and need nothing else. */
function calledText(
  callee: Node,
  parameters: readonly Node[],
  text: (node: Node) => string | undefined,
): string | undefined {
  const [first] = parameters;
  if (callee.type === "Identifier" && callee.name === "atob" && first !== undefined) return fromBase64(text(first));
  if (callee.type !== "MemberExpression" || callee.computed) return undefined;
  const name = callee.property.type === "Identifier" ? callee.property.name : "";
  const object = bare(callee.object);
  if (name === "join" && object.type === "ArrayExpression") {
    const separator = first === undefined ? "," : text(first);
    const parts = object.elements.map((element) => (element === null ? undefined : text(element)));
    return parts.includes(undefined) || separator === undefined ? undefined : parts.join(separator);
  }
  if (name === "concat") return joined([text(object), ...parameters.map((parameter) => text(parameter))]);
  if (name === "fromCharCode" || name === "fromCodePoint") {
    const codes = parameters.map((parameter) => Number(text(parameter)));
    return codes.every((code) => Number.isInteger(code) && code >= 0 && code <= 0x10_ffff)
      ? String.fromCodePoint(...codes)
      : undefined;
  }
  return undefined;
}

function joined(parts: readonly (string | undefined)[]): string | undefined {
  return parts.includes(undefined) ? undefined : parts.join("");
}

function fromBase64(text: string | undefined): string | undefined {
  return text === undefined ? undefined : Buffer.from(text, "base64").toString("latin1");
}
