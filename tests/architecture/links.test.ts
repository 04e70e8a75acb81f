import { posix } from "node:path";
import { expect, test } from "vitest";
import { listFiles, readText } from "./repository.ts";

const files = new Set(listFiles());
const pages = [...files].filter((path) => path.endsWith(".md"));

/** Returns the anchor that GitHub makes from a heading. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}_\- ]/gu, "")
    .replaceAll(" ", "-");
}

function anchorsIn(page: string): string[] {
  return [...readText(page).matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) => anchorOf(heading.trim()));
}

function isThere(page: string, link: string): boolean {
  const [file = "", anchor] = link.split("#");
  const target = file === "" ? page : posix.join(posix.dirname(page), file);
  if (!files.has(target)) return false;
  return anchor === undefined || !target.endsWith(".md") || anchorsIn(target).includes(anchor);
}

test("every link of a page leads to a file and a heading that exist", () => {
  const broken = pages.flatMap((page) =>
    [...readText(page).matchAll(/\]\((?!https?:)([^)\s]+)\)/g)]
      .map(([, link = ""]) => link)
      .filter((link) => !isThere(page, link))
      .map((link) => `${page}: ${link}`),
  );
  expect(broken).toEqual([]);
});
