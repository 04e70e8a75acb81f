import { describe, expect, test } from "vitest";
import { readEnvironment } from "../../src/environment.ts";
import { formatBytes, formatDuration } from "../../src/output/amount.ts";
import { printable } from "../../src/output/printable.ts";
import { styleFor } from "../../src/output/style.ts";
import { bytesColumn, renderTable, type Column } from "../../src/output/table.ts";

interface Row {
  name: string;
  bytes: number;
  note: string;
}

const columns: Column<Row>[] = [
  { header: "NAME", cell: ({ name }) => name },
  bytesColumn("SIZE", ({ bytes }) => bytes),
  { header: "NOTE", cell: ({ note }) => note },
];
const rows: Row[] = [
  { name: "a", bytes: 2048, note: "first" },
  { name: "longer", bytes: 5, note: "" },
];
const style = (_tone: string, text: string) => text;

describe("a table", () => {
  test("is aligned under its header on a terminal, with nothing at the ends of lines", () => {
    expect(renderTable(columns, rows, { isTerminal: true, width: 80, style })).toBe(
      ["NAME     SIZE  NOTE", "a       2 KiB  first", "longer    5 B", ""].join("\n"),
    );
  });

  test("is a line per row with tabs elsewhere, without a header and with exact values", () => {
    expect(renderTable(columns, rows, { isTerminal: false, width: 80, style })).toBe("a\t2048\tfirst\nlonger\t5\t\n");
  });

  test("is narrowed in its last column where the terminal is narrow", () => {
    const wide = [{ name: "a", bytes: 1, note: "a note that is far too long for this" }];
    const drawn = renderTable(columns, wide, { isTerminal: true, width: 24, style });
    expect(drawn.split("\n").map((line) => line.length <= 24)).not.toContain(false);
    expect(drawn).toContain("…");
  });

  test("leaves out details where the terminal is narrow, one after the other, and nothing elsewhere", () => {
    const detailed = columns.map((column) =>
      column.header === "NOTE" ? column : { ...column, isDetail: true as const },
    );
    const headerAt = (width: number): string | undefined =>
      renderTable(detailed, rows, { isTerminal: true, width, style }).split("\n")[0];
    expect([20, 19, 12, 4].map(headerAt)).toEqual(["NAME     SIZE  NOTE", " SIZE  NOTE", " SIZE  NOTE", "NOTE"]);
    expect(renderTable(detailed, rows, { isTerminal: false, width: 4, style })).toContain("longer\t5\t\n");
  });

  test("counts wide characters as two", () => {
    const drawn = renderTable(columns, [{ name: "日本", bytes: 1, note: "x" }, ...rows], {
      isTerminal: true,
      width: 80,
      style,
    });
    expect(drawn).toContain("日本      1 B  x");
  });

  test("shows escape sequences and never sends them", () => {
    const hostile = [{ name: "\u001B]0;owned\u0007", bytes: 1, note: "a\tb\nc\u202E" }];
    for (const isTerminal of [true, false]) {
      const drawn = renderTable(columns, hostile, { isTerminal, width: 200, style });
      expect(drawn).toContain(String.raw`\x1b]0;owned\x07`);
      expect(drawn).toContain(String.raw`a\tb\nc\u202e`);
    }
  });
});

test("colour is for terminals that have it and users who want it", () => {
  const environment = readEnvironment({ TERM: "xterm" });
  const red = (isTTY: boolean, change: object) => styleFor({ isTTY }, { ...environment, ...change })("bad", "x");
  expect(red(true, {})).toBe("\u001B[31mx\u001B[39m");
  expect(red(false, {})).toBe("x");
  expect(red(true, { hasNoColor: true })).toBe("x");
  expect(red(true, { term: "dumb" })).toBe("x");
});

test.for([
  [0, "0 B"],
  [1023, "1023 B"],
  [1536, "1.5 KiB"],
  [1024 ** 3, "1 GiB"],
  [150 * 1024 ** 2, "150 MiB"],
] as const)("%d bytes are shown as %s", ([bytes, text]) => {
  expect(formatBytes(bytes)).toBe(text);
});

test.for([
  [-5, "0ms"],
  [350, "350ms"],
  [12_000, "12s"],
  [200_000, "3m 20s"],
  [3_600_000, "1h"],
  [7_500_000, "2h 5m"],
  [90_000_000, "1d 1h"],
] as const)("%d ms are shown as %s", ([ms, text]) => {
  expect(formatDuration(ms)).toBe(text);
});

test("plain text is unchanged", () => {
  expect(printable("Grüße, 日本 🙂")).toBe("Grüße, 日本 🙂");
});
