import { expect, test } from "vitest";
import { listFiles, readText } from "./repository.ts";

const maximumLines = 400;

/** Names that say how code is sorted, not what it is about; such folders collect whatever has no home. */
const vagueNames = new Set(["utils", "helpers", "common", "managers", "services", "core"]);

test(`no source file is longer than ${maximumLines} lines`, () => {
  const tooLong = listFiles()
    .filter((path) => /\.(ts|tsx|mts|mjs|c|h)$/.test(path))
    .map((path) => ({ path, lines: readText(path).trimEnd().split("\n").length }))
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
