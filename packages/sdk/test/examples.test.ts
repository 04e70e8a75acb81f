import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const source = fileURLToPath(new URL("../src", import.meta.url));
const publicFiles = [
  "client.ts",
  "sandbox.ts",
  "pty.ts",
  "keys.ts",
  "templates.ts",
  "snapshots.ts",
  "commands/commands.ts",
  "commands/command-handle.ts",
  "files/files.ts",
  "mock/mock-server.ts",
];

/** Matches a method of an exported class with the comment before it; overloads share the comment of the first. */
const method = /(\/\*\*(?:(?!\*\/)[\s\S])*\*\/)?\n {2}(?:static )?(?:async )?\*?([a-z]\w*)(?:<[^>]*>)?\(/g;

test.for(publicFiles)("every public method in %s has an example", (file) => {
  const text = readFileSync(`${source}/${file}`, "utf8");
  const documented = new Set<string>();
  const bare = new Set<string>();
  for (const [, comment, name = ""] of text.matchAll(method)) {
    if (name === "constructor") continue;
    if (comment?.includes("@example") === true) documented.add(name);
    else bare.add(name);
  }
  expect(documented.size).toBeGreaterThan(2);
  expect([...bare].filter((name) => !documented.has(name))).toEqual([]);
});

test("the list of public files names existing files", () => {
  expect(readdirSync(source, { recursive: true })).toEqual(expect.arrayContaining(publicFiles));
});
