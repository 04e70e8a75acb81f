import type { TestStatus } from "../models/report.ts";

export interface ParsedTests {
  /** By test id, in the form that the data sets use. */
  tests: Map<string, TestStatus>;
  /** Whether the output shows that the runner got to its end: an empty result is then a result. */
  suiteRan: boolean;
}

export interface ParserInput {
  /** Output of the test command, decoded, with ANSI sequences removed: stdout and stderr in the order of arrival. */
  text: string;
  /** The structured result file, if the command wrote one. */
  results?: string;
}

export interface Parser {
  readonly id: string;
  /** Part of the key of a report: raised whenever the same input gives another result. */
  readonly version: number;
  parse(input: ParserInput): ParsedTests;
}
