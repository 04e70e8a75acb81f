import { expect, test } from "vitest";
import { listFiles, readText } from "./repository.ts";

test("no source uses AbortSignal.timeout, whose timer the garbage collector may remove", () => {
  const users = listFiles()
    .filter((path) => /^packages\/[^/]+\/src\/.*\.ts$/.test(path) && path !== "packages/protocol/src/deadline.ts")
    .filter((path) =>
      readText(path)
        .split("\n")
        // Examples in comments may use it: they only pass the signal on.
        .some((line) => line.includes("AbortSignal.timeout(") && !line.trimStart().startsWith("*")),
    );
  expect(users, "use deadlineAfter instead of AbortSignal.timeout").toEqual([]);
});

test("no source uses AbortSignal.any, which leaks when one of its signals lives long", () => {
  const users = listFiles()
    .filter((path) => /^packages\/(engine|server|storage)\/src\/.*\.ts$/.test(path))
    .filter((path) => readText(path).includes("AbortSignal.any("));
  expect(users, "use firstToAbort instead of AbortSignal.any").toEqual([]);
});
