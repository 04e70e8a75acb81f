import { isHeadless } from "./is-headless.mjs";
import { exceptions, retiredWords } from "./retired-words.mjs";
import { maxWidth } from "./wrap-comments.mjs";

const retired = new RegExp(`\\b(${Object.keys(retiredWords).join("|")})\\b`, "gi");

/**
 * @param {string} path of the file, from the root of the repository
 * @param {string} source
 * @returns {{ line: number, problem: string }[]}
 */
export function findProblems(path, source) {
  const isMarkdown = path.endsWith(".md");
  const lines = source.split("\n");
  return [["", path], ...lines.map((text) => [text, text])].flatMap(([shown = "", text = ""], line) => {
    const problems = wordProblems(path, text);
    if (line > 0 && shown.length > maxWidth && !mayBeWide(shown, isMarkdown)) {
      problems.push(`has ${shown.length} columns, ${maxWidth} at most`);
    }
    if (!isMarkdown && line > 0 && isHeadless(lines, line - 1)) problems.push("a comment names its subject first");
    return problems.map((problem) => ({ line: Math.max(line, 1), problem }));
  });
}

/**
 * @param {string} path
 * @param {string} text
 */
function wordProblems(path, text) {
  if (exceptions.some((exception) => exception.path.test(path) && exception.line.test(text))) return [];
  const words = text.replaceAll(/([a-z0-9])([A-Z])/g, "$1 $2").replaceAll(/[_-]/g, " ");
  const found = new Set([...words.matchAll(retired)].map(([word]) => word.toLowerCase()));
  return [...found].map((word) => `"${word}" is retired; write ${retiredWords[word]}`);
}

/**
 * @param {string} text
 * @param {boolean} isMarkdown
 */
function mayBeWide(text, isMarkdown) {
  return (isMarkdown && text.startsWith("|")) || /https?:\/\/\S{60,}/.test(text);
}
