import type { TestStatus } from "../models/report.ts";

export interface ParsedTests {
  /** By test id, in the form that the data sets use. */
  tests: Map<string, TestStatus>;
  /** Whether the output shows that the runner got to its end: an empty result is then a result. */
  suiteRan: boolean;
}

export interface ParserInput {
  /** Output of the test command, decoded: stdout and stderr in the order of arrival. */
  text: string;
  /** Stdout alone, for runners that print JSON or XML on it. */
  stdout?: string;
  /** The structured result file, if the command wrote one. */
  results?: string;
}

export interface Parser {
  readonly id: string;
  /** Part of the key of a report: raised whenever the same input gives another result. */
  readonly version: number;
  parse(input: ParserInput): ParsedTests;
}

/** A runner prints hundreds of thousands of tests at most; a hostile one prints until memory is full. */
const maxTests = 300_000;
const maxIdLength = 8192;

/** Collects the results of one run. As with SWE-bench, the last line about a test decides. */
export class TestCollector {
  readonly tests = new Map<string, TestStatus>();

  set(id: string, status: TestStatus): void {
    if (id === "" || id.length > maxIdLength) return;
    if (this.tests.size >= maxTests && !this.tests.has(id)) return;
    this.tests.set(id, status);
  }

  setNew(id: string, status: TestStatus): void {
    if (!this.tests.has(id)) this.set(id, status);
  }
}

/** Nothing that a parser looks for is in a longer line. The limit keeps hostile output from costing time. */
const maxLineLength = 16_384;

/** Calls back for every line, without ANSI sequences and without its line break. */
export function eachLine(text: string, visit: (line: string) => void): void {
  for (let start = 0; start < text.length;) {
    const found = text.indexOf("\n", start);
    const end = found === -1 ? text.length : found;
    if (end - start <= maxLineLength) {
      for (const line of text.slice(start, end).split("\r")) visit(stripAnsi(line));
    }
    start = end + 1;
  }
}

// oxlint-disable-next-line no-control-regex -- the escape character is what is looked for
const ansi = /\u001B(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001B]*(?:\u0007|\u001B\\)|[ -/]*[0-~])/g;

/** Removes what moves the cursor or colours text. */
export const stripAnsi = (text: string): string => (text.includes("\u001B") ? text.replace(ansi, "") : text);

/** `12ms`, `1.2 s` or `3m` at the end of a line, in parentheses or not. */
export const withoutDuration = (name: string): string =>
  name.replace(/ \(?\d{1,9}(?:\.\d{1,9})? ?(?:ms|s|m)\)?$/, "").trimEnd();

/** The number of spaces that a line begins with. */
export const indentOf = (line: string): number => line.length - line.trimStart().length;
