/**
 * @typedef {object} Summary
 * @property {number} passed
 * @property {number} failed counts tests, and files or groups that failed outside of a test
 * @property {{ name: string, reason: string }[]} skipped
 */

/** @param {Summary} summary */
export function countLine({ passed, failed, skipped }) {
  return `${passed} passed, ${failed} failed, ${skipped.length} skipped`;
}

/** @param {Summary} summary */
export function skippedLines({ skipped }) {
  return skipped.map(({ name, reason }) => `did not run: ${name} (${reason})`);
}

/**
 * Returns whether a run succeeded. A run in which no test ran proves nothing, so it is no success.
 *
 * @param {number} exitCode the exit code of the runner
 * @param {Summary | undefined} summary undefined if the runner ended without writing one
 */
export function isSuccess(exitCode, summary) {
  return exitCode === 0 && summary !== undefined && summary.failed === 0 && summary.passed > 0;
}
