import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const repositoryRoot = fileURLToPath(new URL("../..", import.meta.url));

/** Returns every file that is or could be committed: files that are tracked, or new and not ignored. */
export function listFiles(): string[] {
  const git = (...args: string[]) =>
    execFileSync("git", ["ls-files", "-z", ...args], { cwd: repositoryRoot, encoding: "utf8" })
      .split("\0")
      .filter((path) => path !== "");
  const deleted = new Set(git("--deleted"));
  return git("--cached", "--others", "--exclude-standard").filter((path) => !deleted.has(path));
}

export function readText(path: string): string {
  return readFileSync(join(repositoryRoot, path), "utf8");
}
