export interface Position {
  /** Both from 1. */
  line: number;
  column: number;
}

/** The position of an offset, counted in UTF-16 units as editors do. */
export function positionOf(source: string, offset: number): Position {
  const before = source.slice(0, offset);
  const line = before.split("\n").length;
  return { line, column: offset - (before.lastIndexOf("\n") + 1) + 1 };
}

/** The lines around a position, with numbers and a marker under the place. */
export function codeFrame(source: string, { line, column }: Position, context = 2): string {
  const lines = source.split("\n");
  const first = Math.max(1, line - context);
  const last = Math.min(lines.length, line + context);
  const width = String(last).length;
  const frame: string[] = [];
  for (let number = first; number <= last; number += 1) {
    const text = lines[number - 1] ?? "";
    frame.push(`${number === line ? ">" : " "} ${String(number).padStart(width)} | ${text}`.trimEnd());
    if (number === line) {
      // Tabs stay tabs, so that the marker stands under its character.
      const indent = text.slice(0, column - 1).replaceAll(/[^\t]/g, " ");
      frame.push(`  ${" ".repeat(width)} | ${indent}^`);
    }
  }
  return frame.join("\n");
}
