import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export function readDocument(name: string): string {
  return readFileSync(fileURLToPath(new URL(`../../../../docs/${name}`, import.meta.url)), "utf8");
}

/** Returns the cells of the table under a heading, without its head and without backquotes. */
export function tableUnder(document: string, heading: string): string[][] {
  const start = document.indexOf(`\n## ${heading}\n`);
  if (start === -1) throw new Error(`No heading ${heading}`);
  const end = document.indexOf("\n## ", start + 1);
  const lines = document
    .slice(start, end === -1 ? undefined : end)
    .split("\n")
    .filter((line) => line.startsWith("|"));
  return lines.slice(2).map((line) =>
    line
      .split("|")
      .slice(1, -1)
      .map((cell) => cell.trim().replaceAll("`", "")),
  );
}
