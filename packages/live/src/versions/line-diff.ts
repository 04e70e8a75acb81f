/** More differing lines than this are shown as one block: the time for a shortest diff grows with their square. */
const maxEdits = 2_000;
const contextLines = 3;

type Line = readonly [mark: " " | "-" | "+", text: string];

/** The difference of two texts in the unified format, without a header; empty if there is none. */
export function lineDiff(before: string, after: string): string {
  if (before === after) return "";
  const lines = compare(linesOf(before), linesOf(after));
  const near = lines.map(() => false);
  for (const [at, [mark]] of lines.entries()) {
    if (mark !== " ") near.fill(true, Math.max(0, at - contextLines), at + contextLines + 1);
  }
  const output: string[] = [];
  let oldLine = 1;
  let newLine = 1;
  for (let at = 0; at < lines.length;) {
    if (near[at] !== true) {
      oldLine += 1;
      newLine += 1;
      at += 1;
      continue;
    }
    const end = near.indexOf(false, at);
    const hunk = lines.slice(at, end === -1 ? undefined : end);
    const oldCount = hunk.filter(([mark]) => mark !== "+").length;
    const newCount = hunk.filter(([mark]) => mark !== "-").length;
    output.push(`@@ -${range(oldLine, oldCount)} +${range(newLine, newCount)} @@`);
    output.push(...hunk.map(([mark, text]) => mark + text));
    oldLine += oldCount;
    newLine += newCount;
    at += hunk.length;
  }
  return output.join("\n");
}

const linesOf = (text: string): string[] => (text === "" ? [] : text.replace(/\n$/, "").split("\n"));

/** A range without lines is named by the line before it. */
const range = (first: number, count: number): string => `${count === 0 ? first - 1 : first},${count}`;

function compare(before: readonly string[], after: readonly string[]): Line[] {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let tail = 0;
  while (
    tail < before.length - start &&
    tail < after.length - start &&
    before[before.length - 1 - tail] === after[after.length - 1 - tail]
  ) {
    tail += 1;
  }
  const same = (text: string): Line => [" ", text];
  return [
    ...before.slice(0, start).map(same),
    ...shortest(before.slice(start, before.length - tail), after.slice(start, after.length - tail)),
    ...before.slice(before.length - tail).map(same),
  ];
}

/** Myers' algorithm: the furthest point on each diagonal, for one more edit at a time. */
function shortest(before: readonly string[], after: readonly string[]): Line[] {
  const rounds: Map<number, number>[] = [];
  let furthest = new Map([[1, 0]]);
  const most = Math.min(maxEdits, before.length + after.length);
  for (let edits = 0; edits <= most; edits += 1) {
    rounds.push(furthest);
    const next = new Map<number, number>();
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      let x = startOn(furthest, diagonal, edits);
      while (x < before.length && x - diagonal < after.length && before[x] === after[x - diagonal]) x += 1;
      next.set(diagonal, x);
      if (x >= before.length && x - diagonal >= after.length) return pathBack(rounds, before, after);
    }
    furthest = next;
  }
  return [...before.map((text): Line => ["-", text]), ...after.map((text): Line => ["+", text])];
}

/** Whether the step to a diagonal adds a line; otherwise it removes one. */
const isAddition = (furthest: ReadonlyMap<number, number>, diagonal: number, edits: number): boolean =>
  diagonal === -edits ||
  (diagonal !== edits && (furthest.get(diagonal - 1) ?? -1) < (furthest.get(diagonal + 1) ?? -1));

const startOn = (furthest: ReadonlyMap<number, number>, diagonal: number, edits: number): number =>
  isAddition(furthest, diagonal, edits) ? (furthest.get(diagonal + 1) ?? 0) : (furthest.get(diagonal - 1) ?? 0) + 1;

function pathBack(
  rounds: readonly ReadonlyMap<number, number>[],
  before: readonly string[],
  after: readonly string[],
): Line[] {
  const lines: Line[] = [];
  let x = before.length;
  let y = after.length;
  for (let edits = rounds.length - 1; edits >= 0; edits -= 1) {
    const furthest = rounds[edits] ?? new Map<number, number>();
    const diagonal = x - y;
    const start = edits === 0 ? 0 : startOn(furthest, diagonal, edits);
    while (x > start && y > start - diagonal && x > 0 && y > 0) {
      lines.push([" ", before[x - 1] ?? ""]);
      x -= 1;
      y -= 1;
    }
    if (edits === 0) break;
    if (isAddition(furthest, diagonal, edits)) {
      lines.push(["+", after[y - 1] ?? ""]);
      y -= 1;
    } else {
      lines.push(["-", before[x - 1] ?? ""]);
      x -= 1;
    }
  }
  return lines.toReversed();
}
