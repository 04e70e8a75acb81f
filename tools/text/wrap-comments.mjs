/** The widest line that source and Markdown may have. */
export const maxWidth = 120;

const blockStart = /^(\s*)\/\*(\*?)\s?(.*)$/;

/**
 * Wraps comments that are wider than `maxWidth`. Only whole lines of comment are touched, and of those only paragraphs
 * with a line that is too wide, so that a break that an author chose elsewhere stays.
 *
 * @param {string} source TypeScript, JavaScript or C
 * @returns {string}
 */
export function wrapComments(source) {
  const lines = source.split("\n");
  const wrapped = [];
  for (let at = 0; at < lines.length;) {
    const end = endOfComment(lines, at);
    const block = lines.slice(at, Math.max(end, at + 1));
    wrapped.push(...(end > at && block.some((line) => line.length > maxWidth) ? wrapComment(block) : block));
    at += block.length;
  }
  return wrapped.join("\n");
}

/**
 * @param {readonly string[]} lines
 * @param {number} at
 * @returns {number} the line after the comment that begins at `at`, or `at` where none begins
 */
function endOfComment(lines, at) {
  const line = lines[at] ?? "";
  if (/^\s*\/\/ /.test(line)) {
    const indent = line.indexOf("/");
    let end = at;
    while (new RegExp(`^ {${indent}}//( |$)`).test(lines[end] ?? "")) end += 1;
    return end;
  }
  if (!blockStart.test(line)) return at;
  let end = at;
  while (end < lines.length && !(lines[end] ?? "").includes("*/")) end += 1;
  // Code after the end of a comment stays where it is, and so does the comment.
  return /\*\/\s*$/.test(lines[end] ?? "") ? end + 1 : at;
}

/** @param {readonly string[]} block the lines of one comment */
function wrapComment(block) {
  const first = block[0] ?? "";
  if (/^\s*\/\//.test(first)) {
    const prefix = `${first.slice(0, first.indexOf("/"))}// `;
    return wrapText(
      block.map((line) => line.slice(prefix.length - 1).replace(/^ /, "")),
      prefix,
    );
  }
  const [, indent = "", star = ""] = blockStart.exec(first) ?? [];
  const text = block.map((line, index) => {
    const begun = index === 0 ? (blockStart.exec(line)?.[3] ?? "") : line.replace(/^\s*\* ?(?!\/)/, "");
    return index === block.length - 1 ? begun.replace(/\s*\*\/\s*$/, "") : begun;
  });
  while (text.length > 0 && text[0] === "") text.shift();
  while (text.length > 0 && text.at(-1) === "") text.pop();
  const prefix = `${indent} * `;
  const isOpenAlone = block.length > 1 && /^\s*\/\*+\s*$/.test(first);
  if (star === "*" || isOpenAlone) return [`${indent}/*${star}`, ...wrapText(text, prefix), `${indent} */`];
  // A short comment in C begins on its first line and ends on its last one. The end needs three columns.
  const body = wrapText(text, prefix, 3);
  body[0] = `${indent}/* ${(body[0] ?? "").slice(prefix.length)}`;
  body[body.length - 1] += " */";
  return body;
}

/**
 * @param {readonly string[]} text
 * @param {string} prefix
 * @param {number} [reserve] columns that stay free at the end of each line
 */
function wrapText(text, prefix, reserve = 0) {
  /** @type {string[][]} */
  const paragraphs = [];
  let isCode = false;
  for (const line of text) {
    const fence = line.trimStart().startsWith("```");
    const begins = isCode || fence || line === "" || /^(\s|@|[-*] |\d+\. )/.test(line);
    const last = paragraphs.at(-1);
    // The lines of a list entry after its first one are indented.
    const continues = !isCode && !fence && /^ {2,3}\S/.test(line) && /^([-*]|\d+\.) /.test(last?.[0] ?? "");
    if (last === undefined || last[0] === "" || (begins && !continues)) paragraphs.push([line]);
    else last.push(line);
    if (fence) isCode = !isCode;
  }
  const width = maxWidth - prefix.length - reserve;
  return paragraphs
    .flatMap((lines) => (lines.some((line) => line.length > width) ? fill(lines, width) : lines))
    .map((line) => (prefix + line).trimEnd());
}

/**
 * @param {readonly string[]} lines one paragraph
 * @param {number} width
 */
function fill(lines, width) {
  const [, lead = "", bullet = ""] = /^(\s*)((?:[-*]|\d+\.) )?/.exec(lines[0] ?? "") ?? [];
  const hang = lead + " ".repeat(bullet.length);
  /** @type {string[]} */
  const filled = [];
  let line = "";
  for (const word of lines.join(" ").trim().split(/\s+/)) {
    const start = filled.length === 0 ? lead : hang;
    if (line === "") line = start + word;
    else if (line.length + 1 + word.length <= width) line += ` ${word}`;
    else {
      filled.push(line);
      line = hang + word;
    }
  }
  return [...filled, line];
}
