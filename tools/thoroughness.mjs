/**
 * How much of what could be tried is tried. `npm test` tries a part that fits in minutes; `npm run test:long` sets
 * `ATOLL_TEST_LONG` and tries all of it. CONTRIBUTING.md has the line between the two.
 */
export const isLongRun = process.env["ATOLL_TEST_LONG"] === "1";

/**
 * @template Value
 * @param {Value} usual in `npm test`
 * @param {Value} long in `npm run test:long`
 * @returns {Value}
 */
export function thorough(usual, long) {
  return isLongRun ? long : usual;
}
