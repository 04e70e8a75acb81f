/** Where a text stops being JSON, and what could have stood there. */
export interface JsonError {
  offset: number;
  expected: string;
}

const token = new RegExp(
  [
    String.raw`\s*(?:("[^"\\\u0000-\u001F]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\u0000-\u001F]*)*")`,
    String.raw`(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)`,
    String.raw`([[\]{},:]))`,
  ].join("|"),
  "y",
);

type State = "value" | "first value" | "key" | "first key" | "colon" | "end";

/**
 * Finds the first error of a text that `JSON.parse` refuses, whose own messages have a position in some versions of
 * Node and not in others. `undefined` when there is none.
 */
export function findJsonError(text: string): JsonError | undefined {
  const open: ("{" | "[")[] = [];
  let state: State = "value";
  const reader = new RegExp(token);
  for (;;) {
    const start = reader.lastIndex;
    const match = reader.exec(text);
    const error = (): JsonError => {
      const rest = text.slice(start);
      return { offset: text.length - rest.trimStart().length, expected: describe(state, open.at(-1)) };
    };
    if (match === null) {
      return state === "end" && open.length === 0 && text.slice(start).trim() === "" ? undefined : error();
    }
    const [, string, literal, sign = ""] = match;
    const next = step(state, open, string !== undefined, literal !== undefined, sign);
    if (next === undefined) return error();
    state = next;
  }
}

function describe(state: State, around: "{" | "[" | undefined): string {
  switch (state) {
    case "value":
      return "a value";
    case "first value":
      return "a value or ]";
    case "key":
      return "a name in double quotes";
    case "first key":
      return "a name in double quotes or }";
    case "colon":
      return "a colon";
    case "end":
      return around === undefined ? "the end of the text" : around === "{" ? "a comma or }" : "a comma or ]";
  }
}

function step(
  state: State,
  open: ("{" | "[")[],
  isString: boolean,
  isLiteral: boolean,
  sign: string,
): State | undefined {
  switch (state) {
    case "first value":
    case "value":
      if (isString || isLiteral) return "end";
      if (sign === "{" || sign === "[") {
        open.push(sign);
        return sign === "{" ? "first key" : "first value";
      }
      return state === "first value" && sign === "]" ? close(open) : undefined;
    case "first key":
    case "key":
      if (isString) return "colon";
      return state === "first key" && sign === "}" ? close(open) : undefined;
    case "colon":
      return sign === ":" ? "value" : undefined;
    case "end": {
      const around = open.at(-1);
      if (around === undefined) return undefined;
      if (sign === ",") return around === "{" ? "key" : "value";
      return sign === (around === "{" ? "}" : "]") ? close(open) : undefined;
    }
  }
}

function close(open: ("{" | "[")[]): State {
  open.pop();
  return "end";
}
