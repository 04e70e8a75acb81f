import { expect, test } from "vitest";
import { listFiles, readText } from "./repository.ts";

/** Each of them still sleeps. Nothing is added here: a test waits for the condition. */
const sleepers = new Set([
  "packages/engine/test/guest-native/requests.test.ts",
  "tests/integration/server-hostile.test.ts",
  "tests/integration/server-restart.test.ts",
]);

/** A promise that a timer of more than nothing resolves. Lint sees to the form that Node has for it. */
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
