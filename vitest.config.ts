import { defineConfig, type TestUserConfig } from "vitest/config";
import { driverTags } from "./tests/support/driver-tags.ts";
import { patience } from "./tests/support/patience.ts";
import { SlowestFirst } from "./tests/support/slowest-first.ts";

/** As Node itself has them, and our source. Packages for bundlers, which `module` stands for, do not run in Node. */
const conditions = ["source", "node", "development|production"];

/** Deadlines find what hangs. They say nothing about speed, and a busy machine must not reach them. */
const deadlines = {
  testTimeout: 300_000 * patience,
  hookTimeout: 300_000 * patience,
  expect: { poll: { timeout: 120_000 * patience } },
} as const;

/**
 * Half of the time of a test with real sandboxes is waiting, so there are more workers than cores. A worker runs one
 * file after the other in the same process: what a file imports is loaded once, which takes longer than most files do.
 */
const sharedWorkers = {
  pool: "forks",
  isolate: false,
  maxWorkers: 4,
  retry: 0,
  // A heap that begins small is collected again and again while it grows: a quarter of all that a worker did.
  execArgv: ["--initial-old-space-size=512", "--min-semi-space-size=16", "--max-semi-space-size=16"],
} satisfies TestUserConfig;

/** Said by a client of buckets at every start. */
process.env["AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED"] ??= "true";

/** Everything that tests leave on the host is found by this path; the aftermath looks for it. */
process.env["ATOLL_TEST_ROOT"] ??= `/var/tmp/atoll-test-${process.pid}`;

/** Programs that tests start, made by `test-programs.ts`. In the checkout, where packages are found. */
process.env["ATOLL_TEST_PROGRAMS"] ??= `${import.meta.dirname}/.cache/test-programs/${process.pid}`;

export default defineConfig({
  resolve: { conditions },
  ssr: { resolve: { conditions } },
  test: {
    ...deadlines,
    tags: driverTags(process.env),
    sequence: { sequencer: SlowestFirst },
    projects: [
      {
        extends: true,
        test: {
          name: "unit",
          include: ["packages/*/test/**/*.test.ts", "tests/{architecture,tools}/**/*.test.ts"],
          ...sharedWorkers,
        },
      },
      {
        extends: true,
        test: {
          name: "integration",
          include: ["tests/integration/**/*.test.ts"],
          // One after the other: the second starts what the first has made.
          globalSetup: ["tests/support/programs/test-programs.ts", "tests/support/host-scan.ts"],
          ...sharedWorkers,
        },
      },
      {
        extends: true,
        test: {
          name: "e2e",
          include: ["tests/e2e/**/*.test.ts"],
          ...sharedWorkers,
        },
      },
      {
        extends: true,
        test: {
          name: "aftermath",
          include: ["tests/aftermath/**/*.test.ts"],
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
