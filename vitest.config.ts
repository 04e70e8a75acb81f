import { defineConfig, type TestUserConfig } from "vitest/config";
import { driverTags } from "./tests/support/driver-tags.ts";
import { patience } from "./tests/support/patience.ts";
import { SlowestFirst } from "./tests/support/slowest-first.ts";

/**
 * The conditions that Node itself uses, and `source`. Without this list, `module` would select packages for bundlers.
 */
const conditions = ["source", "node", "development|production"];

/** Deadlines find tests that hang. They say nothing about speed: a busy machine must not reach them. */
const deadlines = {
  testTimeout: 300_000 * patience,
  hookTimeout: 300_000 * patience,
  expect: { poll: { timeout: 120_000 * patience } },
} as const;

/**
 * A test with real sandboxes waits for half of its time, so there are more workers than cores. A worker runs one file
 * after the other in the same process: it loads a module once, which takes longer than most files do.
 */
const sharedWorkers = {
  pool: "forks",
  isolate: false,
  maxWorkers: 4,
  retry: 0,
  // V8 collects a small heap again and again while it grows, which took a quarter of a worker's processor time.
  execArgv: ["--initial-old-space-size=512", "--min-semi-space-size=16", "--max-semi-space-size=16"],
} satisfies TestUserConfig;

/** The client of S3 prints a warning about old releases of Node at every start. */
process.env["AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED"] ??= "true";

/**
 * The directory under which tests create everything that they create on the host; the project `leftovers` looks there.
 */
process.env["ATOLL_TEST_ROOT"] ??= `/var/tmp/atoll-test-${process.pid}`;

/** The programs that `test-programs.ts` bundles. They are in the checkout, because Node finds packages from there. */
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
          // Vitest runs these one after the other: the second starts a program that the first has bundled.
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
          name: "leftovers",
          include: ["tests/leftovers/**/*.test.ts"],
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
