/**
 * Whether tests try all combinations. `npm test` tries a part that fits in minutes; `npm run test:long` sets
 * `ATOLL_TEST_LONG` and tries all of them. CONTRIBUTING.md describes the difference.
 */
export const isLongRun = process.env["ATOLL_TEST_LONG"] === "1";

/**
 * @template Value
 * @param {Value} usual the value for `npm test`
 * @param {Value} long the value for `npm run test:long`
 * @returns {Value}
 */
export function thorough(usual, long) {
  return isLongRun ? long : usual;
}
