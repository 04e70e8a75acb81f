import { expect, test } from "vitest";
import { listFiles, readText } from "./repository.ts";

/** These files still sleep. The list must not grow: a test waits for a condition. */
const sleepers = new Set([
  "packages/engine/test/guest-native/requests.test.ts",
  "tests/integration/server-hostile.test.ts",
  "tests/integration/server-restart.test.ts",
]);

/**
 * A promise that resolves when a timer of more than 0 ms fires. Lint refuses the variant from `node:timers/promises`.
 */
const sleep = /new Promise(?:<[^>]*>)?\(\s*\(?(\w+)\)? =>\s*(?:\{\s*)?setTimeout\(\1, (?!0\))/;

test("no test sleeps", () => {
  const sleeping = listFiles().filter(
    (path) =>
      /^(tests|packages\/[^/]+\/test)\/.*\.ts$/.test(path) &&
      !path.startsWith("tests/bench/") &&
      !sleepers.has(path) &&
      sleep.test(readText(path)),
  );
  expect(sleeping).toEqual([]);
});
