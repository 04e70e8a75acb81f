import { posix } from "node:path";
import type { CanaryPlan } from "../environment.ts";

const title = "atoll canary has to fail";
const content = `it("${title}", () => {\n  throw new Error("this test has to fail");\n});\n`;

/** A runner that finds only some of the tests in its files would not find the canary. */
const isFiltered = /\s(-g|-t|--grep|--testNamePattern|--fgrep|-f)[\s=]/;

const testFile = /(?:^|\s)((?:[\w@.-]+\/)*[\w@.-]+\.(?:[cm]?[jt]sx?))(?=\s|$)/g;

/** A failing test beside the first test file that the command names. `null` where the runner would not find it. */
export function planNodeCanary(line: string): CanaryPlan | null {
  const runner = /\b(mocha|jest|vitest)\b/.exec(line)?.[1] ?? (/\b(npm|pnpm|yarn)\b.*\btest\b/.test(line) ? "any" : "");
  if (runner === "" || isFiltered.test(line) || line.includes("|") || /\bkarma\b/.test(line)) return null;
  const first = [...line.matchAll(testFile)]
    .map((match) => match[1] ?? "")
    .find((path) => !path.includes("node_modules"));
  if (first === undefined) return null;
  // The name ends as that of the other file does, so that the runner's own patterns take it.
  const ending = /((?:[._-](?:test|spec|tests))?\.[cm]?[jt]sx?)$/.exec(posix.basename(first))?.[1] ?? ".js";
  const path = posix.join(posix.dirname(first), `atoll-canary${ending}`);
  const isVitest = runner === "vitest" || (runner === "any" && line.includes("--reporter=verbose"));
  return {
    files: { [path]: content },
    appendArgs: [path],
    testId: isVitest ? `${path} > ${title}` : title,
  };
}
