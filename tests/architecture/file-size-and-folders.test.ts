import { expect, test } from "vitest";
import { listFiles, readText } from "./repository.ts";

const maximumLines = 400;

/** Names that do not say what the code is about; such folders collect everything that has no other place. */
const vagueNames = new Set(["utils", "helpers", "common", "managers", "services", "core"]);

/** Comments are not counted, so that removing comments is no way to stay below the limit. */
const codeLines = (text: string): string[] =>
  text
    .trimEnd()
    .split("\n")
    .filter((line) => !/^\s*(\/\/|\/?\*)/.test(line));

test(`no source file has more than ${maximumLines} lines of code`, () => {
  const tooLong = listFiles()
    .filter((path) => /\.(ts|tsx|mts|mjs|c|h)$/.test(path))
    .map((path) => ({ path, lines: codeLines(readText(path)).length }))
    .filter(({ lines }) => lines > maximumLines);
  expect(tooLong).toEqual([]);
});

test("folders are named after what they are about", () => {
  const vague = listFiles().filter((path) =>
    path
      .split("/")
      .slice(0, -1)
      .some((folder) => vagueNames.has(folder)),
  );
  expect(vague).toEqual([]);
});
