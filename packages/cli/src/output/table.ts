import { formatBytes } from "./amount.ts";
import { printable } from "./printable.ts";
import type { Style, Tone } from "./style.ts";

export interface Column<Row> {
  header: string;
  /** The cell on a terminal. */
  cell: (row: Row) => string;
  /** The cell for programs, where it differs: a time instead of an age, bytes instead of MiB. */
  plain?: (row: Row) => string;
  align?: "right";
  /** Left out where a terminal has no room for all columns, the first of these first. */
  isDetail?: true;
  tone?: (row: Row) => Tone | undefined;
}

export interface TableTarget {
  isTerminal: boolean;
  /** The width of the terminal. */
  width: number;
  style: Style;
}

const gap = "  ";

/** Rounds the value on a terminal; programs get the exact number. */
export function bytesColumn<Row>(header: string, bytesOf: (row: Row) => number): Column<Row> {
  return { header, cell: (row) => formatBytes(bytesOf(row)), plain: (row) => String(bytesOf(row)), align: "right" };
}

/** Renders an aligned table with a header on a terminal, and otherwise a line per row with tabs between cells. */
export function renderTable<Row>(all: readonly Column<Row>[], rows: readonly Row[], target: TableTarget): string {
  if (!target.isTerminal) {
    return rows.map((row) => `${all.map(({ cell, plain }) => printable((plain ?? cell)(row))).join("\t")}\n`).join("");
  }
  const columns = withRoom(all, rows, target.width);
  const cells = rows.map((row) => columns.map(({ cell }) => printable(cell(row))));
  const widths = fit(widthsOf(columns, rows), target.width);
  const draw = (texts: readonly string[], toneOf: (index: number) => Tone | undefined): string => {
    const line = columns.map(({ align }, index) => {
      const width = widths[index] ?? 0;
      const text = shorten(texts[index] ?? "", width);
      const space = " ".repeat(Math.max(0, width - widthOf(text)));
      const tone = toneOf(index);
      const shown = tone === undefined ? text : target.style(tone, text);
      if (align === "right") return space + shown;
      return index === columns.length - 1 ? shown : shown + space;
    });
    return `${line.join(gap).trimEnd()}\n`;
  };
  const header = draw(
    columns.map((column) => column.header),
    () => "strong",
  );
  return header + rows.map((row, at) => draw(cells[at] ?? [], (index) => columns[index]?.tone?.(row))).join("");
}

function withRoom<Row>(all: readonly Column<Row>[], rows: readonly Row[], available: number): readonly Column<Row>[] {
  const detail = all.find(({ isDetail }) => isDetail === true);
  if (detail === undefined || sum(fit(widthsOf(all, rows), available)) <= available) return all;
  return withRoom(
    all.filter((column) => column !== detail),
    rows,
    available,
  );
}

function widthsOf<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): number[] {
  return columns.map(({ header, cell }) =>
    Math.max(header.length, ...rows.map((row) => widthOf(printable(cell(row))))),
  );
}

/** Narrows the last column to fit: the first columns identify the rows. */
function fit(widths: number[], available: number): number[] {
  const missing = sum(widths) - available;
  const last = widths.at(-1) ?? 0;
  return missing <= 0 ? widths : [...widths.slice(0, -1), Math.max(Math.min(8, last), last - missing)];
}

function sum(widths: number[]): number {
  return widths.reduce((total, width) => total + width, 0) + gap.length * (widths.length - 1);
}

function shorten(text: string, width: number): string {
  if (widthOf(text) <= width) return text;
  let short = "";
  for (const character of text) {
    if (widthOf(short + character) >= width) break;
    short += character;
  }
  return `${short}…`;
}

const eastAsian = /\p{Script=Han}|\p{Script=Hiragana}|\p{Script=Katakana}|\p{Script=Hangul}|[\uff01-\uff60]/u;

/** The columns that a text takes on a terminal: East Asian and emoji characters take two, combining marks none. */
function widthOf(text: string): number {
  let width = 0;
  for (const character of text) {
    if (/\p{Mark}|\u200d|\ufe0f/u.test(character)) continue;
    width += eastAsian.test(character) || /\p{Emoji_Presentation}/u.test(character) ? 2 : 1;
  }
  return width;
}
