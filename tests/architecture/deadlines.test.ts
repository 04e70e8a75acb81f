import { expect, test } from "vitest";
import { listFiles, readText } from "./repository.ts";

test("no source relies on a deadline that Node may forget", () => {
  const forgetful = listFiles()
    .filter((path) => /^packages\/[^/]+\/src\/.*\.ts$/.test(path) && path !== "packages/protocol/src/deadline.ts")
    .filter((path) =>
      readText(path)
        .split("\n")
        // In an example the reader's own signal is passed on alone.
        .some((line) => line.includes("AbortSignal.timeout(") && !line.trimStart().startsWith("*")),
    );
  expect(forgetful, "use deadlineAfter instead of AbortSignal.timeout").toEqual([]);
});

test("nothing that lasts is combined with what is over in a moment so that something stays behind", () => {
  const leaving = listFiles()
    .filter((path) => /^packages\/(engine|server|storage)\/src\/.*\.ts$/.test(path))
    .filter((path) => readText(path).includes("AbortSignal.any("));
  expect(leaving, "use firstToAbort instead of AbortSignal.any").toEqual([]);
});
