import { writeFileSync } from "node:fs";

/**
 * A vitest reporter that writes a Summary to the file named by ATOLL_TEST_SUMMARY.
 *
 * @typedef {import("vitest/node").TestModule} TestModule
 * @typedef {import("vitest/node").TestSuite} TestSuite
 * @typedef {import("vitest/node").TestCase} TestCase
 */
// Vitest requires a reporter to be the default export.
// oxlint-disable-next-line import/no-default-export
export default class SummaryReporter {
  /**
   * @param {readonly TestModule[]} modules
   * @param {readonly unknown[]} unhandledErrors
   */
  onTestRunEnd(modules, unhandledErrors) {
    const path = process.env["ATOLL_TEST_SUMMARY"];
    if (path !== undefined) writeFileSync(path, JSON.stringify(summarize(modules, unhandledErrors)));
  }
}

/**
 * @param {readonly TestModule[]} modules
 * @param {readonly unknown[]} unhandledErrors
 * @returns {import("./test-summary.mjs").Summary}
 */
function summarize(modules, unhandledErrors) {
  let passed = 0;
  let failed = unhandledErrors.length;
  /** @type {import("./test-summary.mjs").Summary["skipped"]} */
  const skipped = [];
  for (const module of modules) {
    const suites = [...module.children.allSuites()];
    failed += [module, ...suites].filter((suite) => suite.errors().length > 0).length;
    for (const test of module.children.allTests()) {
      const { state } = test.result();
      if (state === "passed") passed += 1;
      else if (state === "skipped") skipped.push({ name: nameOf(module, test), reason: reasonOf(test) });
      // "pending": the run ended before the test did.
      else failed += 1;
    }
  }
  return { passed, failed, skipped };
}

/**
 * @param {TestModule} module
 * @param {TestCase} test
 */
function nameOf(module, test) {
  return `${module.relativeModuleId} > ${test.fullName}`;
}

/** @param {TestCase} test */
function reasonOf(test) {
  const result = test.result();
  if (result.state === "skipped" && result.note !== undefined) return result.note;
  if (test.options.mode === "todo") return "to be written";
  const { whySkipped } = test.meta();
  if (whySkipped !== undefined) return whySkipped;
  for (let parent = test.parent; ; parent = parent.parent) {
    if (parent.errors().length > 0) return "a hook or an enclosing group failed";
    if (parent.type === "module") return "no reason given";
  }
}
