/**
 * @param {string} words
 * @param {string} [after] a pattern for the text after the word
 */
const beginsWith = (words, after = " ") => new RegExp(`^(${words.split(" ").join("|")})${after}`);

/** A sentence that begins with one of these is not complete. */
const incomplete = beginsWith("Of As Those Whose Whom Which Who And Or");

/**
 * A participle without its subject: "Held until …". A condition may follow one, as in "Aborted when …", because that is
 * how callbacks and optional values are documented.
 */
const participle = beginsWith(
  "(?!Called|Undefined)\\w+ed Built Given Held Kept Known Left Made Put Read Said Seen Sent Taken Told Written",
  " (after|as|at|before|by|for|from|here|in|of|on|only|since|so|to|together|until|where|with|without)\\b",
);

/** A subordinate clause without its main clause, if no comma follows: "Since the machine was started." */
const clause = beginsWith(
  "Although Because Like Since Than Though Unless Unlike Until Whatever Whereas Whichever Whoever",
  " (?!then|now)[^,]*$",
);

const preposition = beginsWith(
  "About Above Across After Against Along Among Apart At Before Behind Below Beside Besides Between Beyond By Down " +
    "During For From In Inside Instead Into Not Off On Onto Out Outside Over Per Round Through To Together Towards " +
    "Under Up Upon Via Where With Within Without",
);

/**
 * A phrase with one of these words may be a sentence. Plurals and participles count as verbs, so that no sentence is
 * refused.
 */
const verb = /\b(are|have|had|do|did|can|cannot|could|may|might|must|need|should|will|would|is|\w+ed|\w{2,}(?<!s)s)\b/i;

/**
 * Returns whether a comment begins on this line with a sentence that has no subject. It finds those that can be
 * recognised by their first words, with few false alarms.
 *
 * @param {readonly string[]} lines of a source
 * @param {number} at
 */
export function isHeadless(lines, at) {
  const sentence = firstSentence(lines, at);
  if (sentence === undefined) return false;
  if (incomplete.test(sentence) || participle.test(sentence) || clause.test(sentence)) return true;
  // In "For eyes" the plural is no verb: so short a phrase has none.
  const isShort = sentence.split(" ").length <= 3;
  return preposition.test(sentence) && (isShort || !verb.test(sentence));
}

/**
 * @param {readonly string[]} lines
 * @param {number} at
 * @returns {string | undefined} the first sentence of the comment that begins on this line
 */
function firstSentence(lines, at) {
  const [, mark, rest = ""] = /^\s*(\/\/|\/\*\*?)(?:\s+(.*))?$/.exec(lines[at] ?? "") ?? [];
  if (mark === undefined || (mark === "//" && isLineComment(lines[at - 1]))) return undefined;
  let text = rest;
  for (let next = at + 1; next < lines.length && !text.includes("*/"); next += 1) {
    const line = (lines[next] ?? "").trim();
    if (mark === "//" ? !isLineComment(line) : /^\*( @|$)/.test(line)) break;
    text += ` ${line.replace(/^(\/\/|\*(?!\/))/, "").trim()}`;
  }
  const whole = text.replace(/\*\/.*$/, "").trim();
  return /^(.*?)[.!?:;](\s|$)/.exec(whole)?.[1] ?? whole;
}

/** @param {string | undefined} line */
function isLineComment(line = "") {
  return /^\s*\/\//.test(line);
}
