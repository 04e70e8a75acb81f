#!/usr/bin/env node
/**
 * Checks what the formatter and lint do not check: the width of comments, strings and Markdown, retired words, and
 * comments without a subject. With `--fix` it wraps wide comments first.
 */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { repositoryRoot } from "./setup/paths.mjs";
import { findProblems } from "./text/find-problems.mjs";
import { wrapComments } from "./text/wrap-comments.mjs";

const git = (/** @type {string[]} */ ...args) =>
  execFileSync("git", ["ls-files", "-z", ...args], { cwd: repositoryRoot, encoding: "utf8" })
    .split("\0")
    .filter((path) => path !== "");
const deleted = new Set(git("--deleted"));
const paths = git("--cached", "--others", "--exclude-standard").filter(
  (path) => /\.(ts|mts|mjs|c|h|md|sh|py)$/.test(path) && !deleted.has(path),
);

let count = 0;
for (const path of paths) {
  const file = join(repositoryRoot, path);
  let source = readFileSync(file, "utf8");
  if (process.argv.includes("--fix") && /\.(ts|mts|mjs|c|h)$/.test(path)) {
    const wrapped = wrapComments(source);
    if (wrapped !== source) writeFileSync(file, wrapped);
    source = wrapped;
  }
  for (const { line, problem } of findProblems(path, source)) {
    console.log(`${path}:${line}: ${problem}`);
    count += 1;
  }
}
if (count > 0) {
  console.log(
    `
    ${count} problems of text; \`npm run fix\` wraps comments and Markdown, the other sentences are yours to rewrite`,
  );
  process.exitCode = 1;
}
