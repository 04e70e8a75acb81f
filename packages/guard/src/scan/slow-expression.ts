const unbounded = String.raw`(?:[*+]|\{\d+,\})\??`;
/** A group of one repeated thing, itself repeated, with something after it that can fail. */
const repeatedRepeat = new RegExp(String.raw`\((?:\?:|\?<\w+>)?[^()|?*+^$[\]{}]${unbounded}\)${unbounded}(?!$|[)|])`);

/**
 * Whether a regular expression repeats without bound a group that is nothing but one thing repeated without bound, such
 * as `(a+)+$` or `(?:\w*)*b`. The time of these is exponential for certain; expressions that are slow in other ways are
 * not found.
 */
export function isSlow(pattern: string): boolean {
  // Character classes and escapes become one character; assertions and references become what is no thing to repeat.
  const simple = pattern.replaceAll(/\\.|\[(?:[^\\\]]|\\.)*\]/gs, (part) => (/^\\[bBk\d]/.test(part) ? "^" : "x"));
  return repeatedRepeat.test(simple);
}
