import type { ParserId } from "../models/task.ts";
import { looksLikeJunit } from "./junit.ts";
import { stripAnsi, type ParserInput } from "./parser.ts";

/** What only one runner prints, looked for at the start of lines, most specific first. */
const signs: readonly (readonly [ParserId, RegExp])[] = [
  ["tap", /^TAP version 1[34]$/m],
  ["node-test", /^ℹ tests \d+$/m],
  ["sympy", /^=+ test process starts =+$/m],
  ["pytest", /^=+ (?:test session starts|short test summary info|.{0,200} in \d[\d.:]*(?: ?s| seconds).{0,20}) =+$/m],
  ["unittest", /^Ran \d+ tests? in \d/m],
  ["vitest", /^ *Test Files +\d/m],
  ["jest", /^Test Suites: +\d/m],
  ["karma", /^.{0,100}Executed \d+ of \d+/m],
  ["jasmine", /^\d+ specs?, \d+ failures?/m],
  ["mocha", /^ *\d+ passing\b/m],
  ["mocha", /^\{\s{1,10}"stats": ?\{/m],
  ["jest", /^\{"num/m],
  ["pytest", /^(?:\d+ (?:passed|failed|skipped|errors?|warnings?|deselected|xfailed|xpassed),? ?){1,7} in \d/m],
  ["tap", /^1\.\.\d+$/m],
];

/** The signs of a runner are in its first and last lines. */
const windowLength = 1024 * 1024;

/** Returns the parser that reads this output; `undefined` if it recognises no runner. */
export function recognise({ text, stdout, results }: ParserInput): ParserId | undefined {
  if (results !== undefined) {
    if (looksLikeJunit(results)) return "junit";
    if (/^\s*\{/.test(results)) return /^\s*\{\s*"stats"/.test(results) ? "mocha" : "jest";
    if (/^(?:TAP version|1\.\.\d|ok \d|not ok \d)/m.test(results.slice(0, windowLength))) return "tap";
  }
  if (stdout !== undefined && looksLikeJunit(stdout)) return "junit";
  const window =
    text.length <= 2 * windowLength ? text : `${text.slice(0, windowLength)}\n${text.slice(-windowLength)}`;
  const shown = stripAnsi(window).replaceAll("\r", "");
  return signs.find(([, sign]) => sign.test(shown))?.[0];
}
